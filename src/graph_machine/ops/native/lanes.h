/* exp and log: included by common.h once per width of vectors, which N, FLOATS, INTS and WHOLES name. */

/* exp for x <= 88, within 2 units in the last place; below -88 it is 0. */
INLINE FLOATS N(exponential)(FLOATS x) {
    x = N(larger_of)((FLOATS){0} - 88.1f, x);
    FLOATS t = x * 1.44269504f + 12582912.0f; /* adding 1.5 * 2^23 rounds to a whole number */
    WHOLES whole = (WHOLES)t; /* unsigned: the bits of a NaN may overflow */
    FLOATS n = t - 12582912.0f;
    FLOATS r = x - n * 0.693359375f - n * -2.12194440e-4f;
    FLOATS z = r * r; /* pairs of terms side by side: a chain of all would wait for itself */
    FLOATS high = 1.9875691500e-4f * r + 1.3981999507e-3f;
    FLOATS middle = 8.3334519073e-3f * r + 4.1665795894e-2f;
    FLOATS low = 1.6666665459e-1f * r + 5.0000001201e-1f;
    FLOATS p = ((high * z + middle) * z + low) * z + (r + 1.0f);
    return p * (FLOATS)((whole + 127u) << 23); /* n = -127 makes this factor 0 */
}

/* log for x > 0, within 2 units in the last place. */
INLINE FLOATS N(logarithm)(FLOATS x) {
    INTS bits = (INTS)x;
    INTS exponent = ((bits >> 23) & 255) - 126;
    FLOATS f = (FLOATS)((bits & 0x007fffff) | 0x3f000000); /* in [0.5, 1) */
    INTS low = f < 0.707106781f;
    exponent += low; /* low is -1 where it holds */
    f = f + (FLOATS)((INTS)f & low) - 1.0f;
    FLOATS z = f * f, n = __builtin_convertvector(exponent, FLOATS);
    FLOATS one = -1.1514610310e-1f * f + 1.1676998740e-1f, four = z * z;
    FLOATS two = -1.2420140846e-1f * f + 1.4249322787e-1f;
    FLOATS three = -1.6668057665e-1f * f + 2.0000714765e-1f;
    FLOATS last = -2.4999993993e-1f * f + 3.3333331174e-1f;
    FLOATS p = (7.0376836292e-2f * z + one) * (four * z) + (two * four + (three * z + last));
    p = p * f * z + n * -2.12194440e-4f - 0.5f * z;
    INTS odd = x != x; /* NaN stays NaN */
    return (FLOATS)((INTS)(f + p + n * 0.693359375f) | odd);
}
