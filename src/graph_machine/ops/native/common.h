/* What the kernels share: vectors of 8 floats, exp and log, products of small matrices, transposition.

   Letters, here and in the other files: b graphs, h heads, n sources, k slots of e1, l slots of e2, m targets,
   c pairs (slot, target), d width of keys, e and v widths of values, a width of addresses. A width with a p is
   filled up with zeros to a multiple of 8, so that no loop has a tail. Nothing here allocates: callers give
   `work`, one slice per thread, and threads take whole graphs. */

#include <math.h>
#include <string.h>
#include <omp.h>

typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int v8i __attribute__((vector_size(32)));
typedef unsigned v8u __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))
#define SET(x) ((v8){x, x, x, x, x, x, x, x})
#define V(p) (*(v8 *)(p))
#define C(p) (*(const v8 *)(p))

/* What a masked entry becomes, and what fills rows up: exponentials of both are 0, sums of a few are finite. */
#define MASKED -1e30f
#define FILL -1e38f

INLINE long filled(long m) { return (m + 7) / 8 * 8; }
INLINE long smaller(long a, long b) { return a < b ? a : b; }
static float *own_slice(float *work, long size) { return work + size * omp_get_thread_num(); }

/* Both give `x` where it is not a number, so that this is seen. */
#ifdef __AVX__
#include <immintrin.h>
INLINE v8 larger_of(v8 bound, v8 x) { return (v8)_mm256_max_ps((__m256)bound, (__m256)x); }
INLINE v8 smaller_of(v8 bound, v8 x) { return (v8)_mm256_min_ps((__m256)bound, (__m256)x); }
#else
INLINE v8 larger_of(v8 bound, v8 x) {
    v8i take = bound > x;
    return (v8)(((v8i)bound & take) | ((v8i)x & ~take));
}
INLINE v8 smaller_of(v8 bound, v8 x) {
    v8i take = bound < x;
    return (v8)(((v8i)bound & take) | ((v8i)x & ~take));
}
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif
#ifndef SHUFFLE
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (v8i){__VA_ARGS__})
#endif

/* Over the 8 numbers of a vector, by halves. */
INLINE float total(v8 x) {
    x += SHUFFLE(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
    x += SHUFFLE(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
    x += SHUFFLE(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
    return x[0];
}

INLINE float largest(v8 x) {
    x = larger_of(x, SHUFFLE(x, x, 4, 5, 6, 7, 0, 1, 2, 3));
    x = larger_of(x, SHUFFLE(x, x, 2, 3, 0, 1, 6, 7, 4, 5));
    x = larger_of(x, SHUFFLE(x, x, 1, 0, 3, 2, 5, 4, 7, 6));
    return x[0];
}

/* exp for x <= 88, within 2 units in the last place; below -88 it is 0. */
INLINE v8 exponential(v8 x) {
    x = larger_of(SET(-88.1f), x);
    v8 t = x * SET(1.44269504f) + SET(12582912.0f); /* adding 1.5 * 2^23 rounds to a whole number */
    v8u whole = (v8u)t; /* unsigned: the bits of a NaN may overflow */
    v8 n = t - SET(12582912.0f);
    v8 r = x - n * SET(0.693359375f) - n * SET(-2.12194440e-4f);
    v8 z = r * r; /* pairs of terms side by side: a chain of all would wait for itself */
    v8 high = SET(1.9875691500e-4f) * r + SET(1.3981999507e-3f);
    v8 middle = SET(8.3334519073e-3f) * r + SET(4.1665795894e-2f);
    v8 low = SET(1.6666665459e-1f) * r + SET(5.0000001201e-1f);
    v8 p = ((high * z + middle) * z + low) * z + (r + SET(1.0f));
    return p * (v8)((whole + 127u) << 23); /* n = -127 makes this factor 0 */
}

/* log for x > 0, within 2 units in the last place. */
INLINE v8 logarithm(v8 x) {
    v8i bits = (v8i)x;
    v8i exponent = ((bits >> 23) & 255) - 126;
    v8 f = (v8)((bits & 0x007fffff) | 0x3f000000); /* in [0.5, 1) */
    v8i low = f < SET(0.707106781f);
    exponent += low; /* low is -1 where it holds */
    f = f + (v8)((v8i)f & low) - SET(1.0f);
    v8 z = f * f, n = __builtin_convertvector(exponent, v8);
    v8 one = SET(-1.1514610310e-1f) * f + SET(1.1676998740e-1f), four = z * z;
    v8 two = SET(-1.2420140846e-1f) * f + SET(1.4249322787e-1f);
    v8 three = SET(-1.6668057665e-1f) * f + SET(2.0000714765e-1f);
    v8 last = SET(-2.4999993993e-1f) * f + SET(3.3333331174e-1f);
    v8 p = (SET(7.0376836292e-2f) * z + one) * (four * z) + (two * four + (three * z + last));
    p = p * f * z + n * SET(-2.12194440e-4f) - SET(0.5f) * z;
    v8i odd = x != x; /* NaN stays NaN */
    return (v8)((v8i)(f + p + n * SET(0.693359375f)) | odd);
}

/* ROWS x 8 WIDE block of C (+)= A B, kept in registers. A is read through two strides, so it may be transposed. */
#define BLOCK(ROWS, WIDE)                                                                              \
    static void block##ROWS##x##WIDE(long k, const float *a, long rs, long cs, const float *b, long ldb, \
                                     float *c, long ldc, int add) {                                    \
        v8 sum[ROWS][WIDE];                                                                            \
        for (int i = 0; i < ROWS; i++)                                                                 \
            for (int j = 0; j < WIDE; j++) sum[i][j] = add ? C(c + i * ldc + 8 * j) : SET(0.0f);       \
        for (long p = 0; p < k; p++) {                                                                 \
            v8 row[WIDE];                                                                              \
            for (int j = 0; j < WIDE; j++) row[j] = C(b + p * ldb + 8 * j);                            \
            for (int i = 0; i < ROWS; i++) {                                                           \
                v8 x = SET(a[i * rs + p * cs]);                                                        \
                for (int j = 0; j < WIDE; j++) sum[i][j] += x * row[j];                                \
            }                                                                                          \
        }                                                                                              \
        for (int i = 0; i < ROWS; i++)                                                                 \
            for (int j = 0; j < WIDE; j++) V(c + i * ldc + 8 * j) = sum[i][j];                         \
    }
#define BLOCKS(WIDE) BLOCK(6, WIDE) BLOCK(5, WIDE) BLOCK(4, WIDE) BLOCK(3, WIDE) BLOCK(2, WIDE) BLOCK(1, WIDE)
BLOCKS(2)
BLOCKS(1)

typedef void (*Block)(long, const float *, long, long, const float *, long, float *, long, int);
static const Block BLOCK_OF[2][6] = {
    {block1x1, block2x1, block3x1, block4x1, block5x1, block6x1},
    {block1x2, block2x2, block3x2, block4x2, block5x2, block6x2},
};

/* The part of B that a pass works with: 16 columns of this many rows stay in the first cache. */
#define DEPTH 216

/* C (m x n) (+)= A (m x k) B (k x n); n is a multiple of 8. */
static void product(long m, long n, long k, const float *a, long rs, long cs, const float *b, long ldb,
                    float *c, long ldc, int add) {
    for (long from = 0; !from || from < k; from += DEPTH, add = 1) { /* once for k = 0: C becomes 0 */
        long depth = smaller(DEPTH, k - from);
        const float *part = a + from * cs, *below = b + from * ldb;
        for (long j = 0; j < n; j += 16) {
            int wide = n - j >= 16;
            long i = 0;
            for (; i + 6 <= m; i += 6) {
                if (wide) block6x2(depth, part + i * rs, rs, cs, below + j, ldb, c + i * ldc + j, ldc, add);
                else block6x1(depth, part + i * rs, rs, cs, below + j, ldb, c + i * ldc + j, ldc, add);
            }
            if (i < m)
                BLOCK_OF[wide][m - i - 1](depth, part + i * rs, rs, cs, below + j, ldb, c + i * ldc + j, ldc, add);
        }
    }
}

/* B (k x n) in panels of 16 columns, filled up with zeros, so that a panel is contiguous: rows a power of two
   apart would fall on each other in the first cache. B is read through two strides. */
INLINE long packed_size(long k, long n) { return k * ((n + 15) / 16 * 16); }

static void pack(long k, long n, const float *b, long rs, long cs, float *out) {
    for (long j = 0; j < n; j += 16, out += 16 * k)
        for (long p = 0; p < k; p++)
            for (long q = 0; q < 16; q++) out[p * 16 + q] = j + q < n ? b[p * rs + (j + q) * cs] : 0.0f;
}

/* The same as `product` with a packed B. */
static void product_packed(long m, long n, long k, const float *a, long rs, long cs, const float *b, float *c,
                           long ldc, int add) {
    for (long j = 0; j < n; j += 16) product(m, smaller(16, n - j), k, a, rs, cs, b + j * k, 16, c + j, ldc, add);
}

/* An 8 x 8 block, from rows `ldi` apart to rows `ldo` apart. */
INLINE void transpose8(const float *in, long ldi, float *out, long ldo) {
    v8 x[8], y[8];
    for (int i = 0; i < 8; i++) x[i] = C(in + i * ldi);
    for (int i = 0; i < 8; i += 2) {
        y[i] = SHUFFLE(x[i], x[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        y[i + 1] = SHUFFLE(x[i], x[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            x[i + j] = SHUFFLE(y[i + j], y[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            x[i + j + 2] = SHUFFLE(y[i + j], y[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        V(out + i * ldo) = SHUFFLE(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        V(out + (i + 4) * ldo) = SHUFFLE(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* in (rows, cols) to out (cols, rows), both filled up: all of rows and cols are multiples of 8. */
static void transpose(long rows, long cols, const float *in, long ldi, float *out, long ldo) {
    for (long i = 0; i < rows; i += 8)
        for (long j = 0; j < cols; j += 8) transpose8(in + i * ldi + j, ldi, out + j * ldo + i, ldo);
}

/* The first `count` < 8 numbers of a vector, the others 0. */
INLINE v8 load_part(const float *p, long count) {
#ifdef __AVX__
    static const int bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return (v8)_mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(bits + 8 - count)));
#else
    v8 x = SET(0.0f);
    for (long t = 0; t < count; t++) x[t] = p[t];
    return x;
#endif
}

INLINE void store_part(float *p, long count, v8 x) {
    for (long t = 0; t < count; t++) p[t] = x[t];
}

/* A row of `width` numbers into one of filled width, and back. */
INLINE void fill_row(float *out, const float *in, long width, long wp) {
    long t = 0;
    for (; t + 8 <= width; t += 8) V(out + t) = C(in + t);
    if (t < width) V(out + t) = load_part(in + t, width - t), t += 8;
    for (; t < wp; t += 8) V(out + t) = SET(0.0f);
}

INLINE void copy_row(float *out, const float *in, long width) {
    long t = 0;
    for (; t + 8 <= width; t += 8) V(out + t) = C(in + t);
    if (t < width) store_part(out + t, width - t, load_part(in + t, width - t));
}

/* Rows of a tensor (b, h, n, .) through strides; rows themselves are contiguous. Absent: at = 0. */
typedef struct {
    float *at;
    long graph, head, node;
} Heads;
#define ROW(x, i, head_, j) ((x).at + (i) * (x).graph + (head_) * (x).head + (j) * (x).node)
