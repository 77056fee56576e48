"""Numba kernels. Import them through solve, generate and rate, which say what is missing.

Numba's cache on disk looks at the file of a kernel only, not at the files it calls into. Hence
`nine` and `general` call nothing outside of themselves but `bits`, and whoever changes `bits`
must touch both.
"""
