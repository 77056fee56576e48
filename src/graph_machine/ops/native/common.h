/* What the kernels share: vectors, exp and log, products of small matrices, transposition.

   Letters, here and in the other files: b graphs, h heads, n sources, k slots of e1, l slots of e2, m targets,
   c pairs (slot, target), d width of keys, e and v widths of values, a width of addresses. A width with a p is
   filled up with zeros to a multiple of 8, or of LANES where rows are long, so that no loop has a tail. Nothing here
   allocates: callers give `work`, one slice per thread, and threads take whole graphs. */

#include <math.h>
#include <string.h>
#include <omp.h>

typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int v8i __attribute__((vector_size(32)));
typedef unsigned v8u __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))
#define V8(p) (*(v8 *)(p))
#define C8(p) (*(const v8 *)(p))

#if defined(__AVX__)
#include <immintrin.h>
#endif
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif
#ifndef SHUFFLE
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (v8i){__VA_ARGS__})
#endif

/* Both give `x` where it is not a number, so that this is seen. */
#ifdef __AVX__
INLINE v8 larger_of8(v8 bound, v8 x) { return (v8)_mm256_max_ps((__m256)bound, (__m256)x); }
INLINE v8 smaller_of8(v8 bound, v8 x) { return (v8)_mm256_min_ps((__m256)bound, (__m256)x); }
#else
INLINE v8 larger_of8(v8 bound, v8 x) {
    v8i take = bound > x;
    return (v8)(((v8i)bound & take) | ((v8i)x & ~take));
}
INLINE v8 smaller_of8(v8 bound, v8 x) {
    v8i take = bound < x;
    return (v8)(((v8i)bound & take) | ((v8i)x & ~take));
}
#endif

/* Over the 8 numbers of a vector, by halves. */
INLINE float total8(v8 x) {
    x += SHUFFLE(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
    x += SHUFFLE(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
    x += SHUFFLE(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
    return x[0];
}

INLINE float largest8(v8 x) {
    x = larger_of8(x, SHUFFLE(x, x, 4, 5, 6, 7, 0, 1, 2, 3));
    x = larger_of8(x, SHUFFLE(x, x, 2, 3, 0, 1, 6, 7, 4, 5));
    x = larger_of8(x, SHUFFLE(x, x, 1, 0, 3, 2, 5, 4, 7, 6));
    return x[0];
}

/* The widest vectors there are, of LANES numbers: 16 with AVX-512, else 8. */
#ifdef __AVX512F__
#define LANES 16
typedef float vw __attribute__((vector_size(64), aligned(4), may_alias));
typedef int vwi __attribute__((vector_size(64)));
typedef unsigned vwu __attribute__((vector_size(64)));
INLINE vw SET(float x) { return (vw)_mm512_set1_ps(x); }
INLINE v8 half_of(vw x, int high) {
    return (v8)_mm256_castpd_ps(high ? _mm512_extractf64x4_pd((__m512d)x, 1) : _mm512_castpd512_pd256((__m512d)x));
}
INLINE vw larger_of(vw bound, vw x) { return (vw)_mm512_max_ps((__m512)bound, (__m512)x); }
INLINE vw smaller_of(vw bound, vw x) { return (vw)_mm512_min_ps((__m512)bound, (__m512)x); }
INLINE float total(vw x) { return total8(half_of(x, 0) + half_of(x, 1)); }
INLINE float largest(vw x) { return largest8(larger_of8(half_of(x, 0), half_of(x, 1))); }
#else
#define LANES 8
typedef v8 vw;
typedef v8i vwi;
typedef v8u vwu;
INLINE vw SET(float x) { return (vw){x, x, x, x, x, x, x, x}; }
#define larger_of larger_of8
#define smaller_of smaller_of8
#define total total8
#define largest largest8
#endif
INLINE v8 SET8(float x) { return (v8){x, x, x, x, x, x, x, x}; }
#define V(p) (*(vw *)(p))
#define C(p) (*(const vw *)(p))

/* What a masked entry becomes, and what fills rows up: exponentials of both are 0, sums of a few are finite. */
#define MASKED -1e30f
#define FILL -1e38f

INLINE long filled(long m) { return (m + 7) / 8 * 8; }
INLINE long across(long m) { return (m + LANES - 1) / LANES * LANES; }
INLINE long smaller(long a, long b) { return a < b ? a : b; }
static float *own_slice(float *work, long size) { return work + size * omp_get_thread_num(); }

/* Every thread begins with its own share of the parts (mostly graphs), whose rows it has mostly written itself, and then
   takes what others have not begun: they may be held up, and parts may differ in size. */
INLINE long next_part(long *taken, long count, int threads) {
    for (int set = 0, me = omp_get_thread_num(); set < threads; set++) {
        long whose = (me + set) % threads, i;
#pragma omp atomic capture
        i = taken[whose]++;
        i += count * whose / threads;
        if (i < count * (whose + 1) / threads) return i;
    }
    return count;
}
#define EACH_PART(i, count)                      \
    long taken[threads];                         \
    memset(taken, 0, sizeof taken);              \
    _Pragma("omp parallel num_threads(threads)") \
    for (long i; (i = next_part(taken, count, threads)) < (count);)

/* Gradients of parameters: every thread has a set of its own, in cache lines of its own, and the first one becomes the sum
   of all. */
INLINE long apart(long count) { return (count / 1024 + 2) * 1024; }
/* This thread's set, cleared by the thread itself: lines have to come from the one that wrote them last. */
static float *own_set(long count, float *sets, int threads) {
    for (int set = omp_get_thread_num(); set < threads; set += omp_get_num_threads())
        memset(sets + set * apart(count), 0, apart(count) * sizeof(float));
    return own_slice(sets, apart(count));
}
static void join_sets(long count, float *sets, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 2)
    for (long t = 0; t < apart(count); t += LANES)
        for (int set = 1; set < threads; set++) V(sets + t) += C(sets + set * apart(count) + t);
}

/* The next part of a slice; parts begin where a vector should. */
INLINE float *take(float **at, long count) {
    float *part = *at;
    *at += (count + 15) / 16 * 16;
    return part;
}

/* The first `left` numbers of a vector, the others 0; all of them where as many are left. */
INLINE vw load(const float *p, long left) {
    if (left >= LANES) return C(p);
#if defined(__AVX512F__) /* halves apart: masked stores hold up the loads that follow them */
    if (left == 8) return (vw)_mm512_zextps256_ps512(_mm256_loadu_ps(p));
    return (vw)_mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1), p);
#elif defined(__AVX__)
    static const int bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return (vw)_mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(bits + 8 - left)));
#else
    vw x = SET(0.0f);
    for (long t = 0; t < left; t++) x[t] = p[t];
    return x;
#endif
}

INLINE void store(float *p, long left, vw x) {
    if (left >= LANES) V(p) = x;
#if defined(__AVX512F__)
    else if (left == 8) V8(p) = half_of(x, 0);
    else _mm512_mask_storeu_ps(p, (__mmask16)((1u << left) - 1), (__m512)x);
#else
    else
        for (long t = 0; t < left; t++) p[t] = x[t];
#endif
}

/* A row of `width` numbers. The last vector overlaps the one before it, as tails are slow. */
INLINE void copy_row(float *out, const float *in, long width) {
    if (width < LANES) {
        store(out, width, load(in, width));
        return;
    }
    for (long t = 0; t + LANES <= width; t += LANES) V(out + t) = C(in + t);
    if (width % LANES) V(out + width - LANES) = C(in + width - LANES);
}

/* The same into a row of filled width. */
INLINE void fill_row(float *out, const float *in, long width, long wp) {
    for (long t = width / 8 * 8; t < wp; t += 8) V8(out + t) = SET8(0.0f);
    copy_row(out, in, width);
}

/* exp and log of vectors of 8 and of LANES numbers. */
#define N(name) name##8
#define FLOATS v8
#define INTS v8i
#define WHOLES v8u
#include "lanes.h"
#undef N
#undef FLOATS
#undef INTS
#undef WHOLES
#if LANES > 8
#define N(name) name
#define FLOATS vw
#define INTS vwi
#define WHOLES vwu
#include "lanes.h"
#else
#define exponential exponential8
#define logarithm logarithm8
#endif

/* 1 / sqrt(mean(x^2) + eps) of a row. */
INLINE float inverse_rms(long d, const float *x, float eps) {
    vw sum = SET(0.0f);
    for (long t = 0; t < d; t += LANES) sum += load(x + t, d - t) * load(x + t, d - t);
    return 1.0f / sqrtf(total(sum) / d + eps);
}

/* Rows that are worked on together. */
#define TILE 48

INLINE vw sigmoid(vw x) { return SET(1.0f) / (SET(1.0f) + exponential(smaller_of(SET(88.0f), -x))); }

INLINE vw where(vwi yes, vw a, vw b) { return (vw)(((vwi)a & yes) | ((vwi)b & ~yes)); }

/* log(1 + exp(z)) without loss for small exponentials, as log1p. */
INLINE vw softplus(vw z) {
    vw e = exponential(smaller_of(SET(20.0f), z)), u = SET(1.0f) + e, gap = u - SET(1.0f);
    vw low = where(gap == SET(0.0f), e, logarithm(u) * (e / where(gap == SET(0.0f), SET(1.0f), gap)));
    return where(z > SET(20.0f), z, low);
}

/* What becomes of a part of a projection. */
enum { AS_IS, UNIT_RMS, SOFTPLUS, EXPONENTIAL };

INLINE vw temperature_of(long kind, vw z, float shift) {
    return kind == SOFTPLUS ? softplus(z + shift) : exponential(smaller_of(SET(88.7f), z));
}

INLINE vw temperature_slope(long kind, vw z, float shift) {
    return kind == SOFTPLUS ? sigmoid(z + shift) : exponential(smaller_of(SET(88.7f), z));
}

INLINE void norm_row(long d, const float *x, const float *weight, float scale, float *out) {
    for (long t = 0; t < d; t += LANES)
        store(out + t, d - t, load(x + t, d - t) * SET(scale) * load(weight + t, d - t));
}

/* dx = given + scale (weight dy - xhat <weight dy, xhat> / d), d_weight += dy xhat; `given` may be null. */
INLINE void norm_back(long d, const float *x, const float *weight, float scale, const float *dy, const float *given,
                      float *dx, float *d_weight) {
    vw dot = SET(0.0f);
    for (long t = 0; t < d; t += LANES) {
        long left = d - t;
        vw hat = load(x + t, left) * SET(scale), slope = load(dy + t, left);
        store(d_weight + t, left, load(d_weight + t, left) + slope * hat);
        dot += slope * load(weight + t, left) * hat;
    }
    vw mean = SET(total(dot) / d * scale);
    for (long t = 0; t < d; t += LANES) {
        long left = d - t;
        vw slope = SET(scale) * (load(dy + t, left) * load(weight + t, left) - load(x + t, left) * mean);
        if (given) slope += load(given + t, left);
        store(dx + t, left, slope);
    }
}

/* ROWS x WIDE vectors of C (+)= A B, kept in registers: for that, loops over them are unrolled early. A is read
   through two strides, so it may be transposed. `panels` such blocks lie side by side. */
#ifdef __AVX__
#define IN_REGISTER(x) __asm__("" : "+v"(x)) /* not loaded again for every row */
#else
#define IN_REGISTER(x)
#endif
#define EACH(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)
#define BLOCK(ROWS, WIDE, VECTOR, SUFFIX)                                                                    \
    static void block##ROWS##x##WIDE##SUFFIX(long panels, long k, const float *a, long rs, long cs, const float *b, \
                                             long ldb, float *c, long ldc, int add) {                        \
        enum { STEP = sizeof(VECTOR) / sizeof(float) };                                                      \
        for (; panels; panels--, b += WIDE * STEP, c += WIDE * STEP) {                                       \
            const float *left = a, *below = b;                                                               \
            VECTOR sum[ROWS][WIDE];                                                                          \
            EACH(i, ROWS) EACH(j, WIDE) sum[i][j] = (VECTOR){0};                                             \
            if (add) EACH(i, ROWS) EACH(j, WIDE) sum[i][j] = *(const VECTOR *)(c + i * ldc + STEP * j);      \
            for (long p = 0; p < k; p++, left += cs, below += ldb) {                                         \
                VECTOR row[WIDE];                                                                            \
                EACH(j, WIDE) row[j] = *(const VECTOR *)(below + STEP * j);                                  \
                EACH(j, WIDE) IN_REGISTER(row[j]);                                                           \
                EACH(i, ROWS) EACH(j, WIDE) sum[i][j] += left[i * rs] * row[j];                              \
            }                                                                                                \
            EACH(i, ROWS) EACH(j, WIDE) *(VECTOR *)(c + i * ldc + STEP * j) = sum[i][j];                     \
        }                                                                                                    \
    }
typedef void (*Block)(long, long, const float *, long, long, const float *, long, float *, long, int);
/* Blocks of one width by their number of rows, from 1 to 8. */
#define BLOCKS(WIDE, VECTOR, SUFFIX)                                                                              \
    BLOCK(8, WIDE, VECTOR, SUFFIX) BLOCK(7, WIDE, VECTOR, SUFFIX) BLOCK(6, WIDE, VECTOR, SUFFIX)                   \
    BLOCK(5, WIDE, VECTOR, SUFFIX) BLOCK(4, WIDE, VECTOR, SUFFIX) BLOCK(3, WIDE, VECTOR, SUFFIX)                   \
    BLOCK(2, WIDE, VECTOR, SUFFIX) BLOCK(1, WIDE, VECTOR, SUFFIX)                                                  \
    static const Block of##WIDE##SUFFIX[] = {                                                                      \
        block1x##WIDE##SUFFIX, block2x##WIDE##SUFFIX, block3x##WIDE##SUFFIX, block4x##WIDE##SUFFIX,                \
        block5x##WIDE##SUFFIX, block6x##WIDE##SUFFIX, block7x##WIDE##SUFFIX, block8x##WIDE##SUFFIX};
BLOCKS(2, vw, w)
BLOCKS(1, vw, w)
#if LANES > 8
BLOCKS(1, v8, n)
#else
#define of1n of1w
#endif

/* Rows of a block of two vectors: as many as there are registers for. */
#define BLOCK_ROWS (LANES == 16 ? 8 : 6)
/* The part of B that a pass works with: 2 LANES columns of this many rows stay in the first cache. */
#define DEPTH 216

/* Of products this shallow, a row of blocks is made in one call. */
#define SHALLOW 16

/* m rows in even blocks of at most `most`: few rows would wait for their own sums. */
INLINE void product_rows(const Block *of, long most, long panels, long m, long k, const float *a, long rs, long cs,
                         const float *b, long ldb, float *c, long ldc, int add) {
    long blocks = (m + most - 1) / most, rows = m / blocks, more = m % blocks;
    for (; more; more--, a += (rows + 1) * rs, c += (rows + 1) * ldc, blocks--)
        of[rows](panels, k, a, rs, cs, b, ldb, c, ldc, add);
    for (; blocks; blocks--, a += rows * rs, c += rows * ldc) of[rows - 1](panels, k, a, rs, cs, b, ldb, c, ldc, add);
}

/* C (m x n) (+)= A (m x k) B (k x n); n is a multiple of 8. */
static void product(long m, long n, long k, const float *a, long rs, long cs, const float *b, long ldb,
                    float *c, long ldc, int add) {
    if (!m) return;
    for (long from = 0; !from || from < k; from += DEPTH, add = 1) { /* once for k = 0: C becomes 0 */
        long depth = smaller(DEPTH, k - from), width;
        const float *part = a + from * cs, *below = b + from * ldb;
        for (long j = 0; j < n; j += width) {
            long left = n - j, panels = depth <= SHALLOW && left >= 2 * LANES ? left / (2 * LANES) : 1;
            const Block *of = left >= 2 * LANES ? of2w : left >= LANES ? of1w : of1n;
            width = left >= 2 * LANES ? panels * 2 * LANES : left >= LANES ? LANES : 8;
            product_rows(of, of == of2w ? BLOCK_ROWS : 8, panels, m, depth, part, rs, cs, below + j, ldb, c + j, ldc, add);
        }
    }
}

/* The same for rows of any width n, of B and of C: where columns are left over, the last 8 are made once more. */
static void product_any(long m, long n, long k, const float *a, long rs, long cs, const float *b, long ldb, float *c,
                        long ldc, int add) {
    long whole = n / 8 * 8;
    product(m, whole, k, a, rs, cs, b, ldb, c, ldc, add);
    if (whole == n) return;
    if (n >= 8 && !add) {
        product(m, 8, k, a, rs, cs, b + n - 8, ldb, c + n - 8, ldc, 0);
        return;
    }
    for (long i = 0; i < m; i++, a += rs, c += ldc) {
        v8 sum = SET8(0.0f);
        if (n >= 8)
            for (long p = 0; p < k; p++) sum += SET8(a[p * cs]) * C8(b + p * ldb + n - 8);
        else
            for (long t = 0; t < n; t++)
                for (long p = 0; p < k; p++) sum[8 - n + t] += a[p * cs] * b[p * ldb + t];
        for (long t = whole; t < n; t++) c[t] = (add ? c[t] : 0.0f) + sum[8 - n + t];
    }
}

/* 8 vectors as rows of a matrix become its columns. */
INLINE void turn8(v8 *x) {
    v8 y[8];
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
        v8 low = SHUFFLE(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        x[i + 4] = SHUFFLE(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
        x[i] = low;
    }
}

/* An 8 x 8 block, from rows `ldi` apart to rows `ldo` apart. */
INLINE void transpose8(const float *in, long ldi, float *out, long ldo) {
    v8 x[8];
    EACH(i, 8) x[i] = C8(in + i * ldi);
    turn8(x);
    EACH(i, 8) V8(out + i * ldo) = x[i];
}

/* B (k x n) in panels of PANEL columns, filled up with zeros, so that a panel is contiguous: rows a power of two
   apart would fall on each other in the first cache. B is read through two strides, one of which is 1. */
#define PANEL (2 * LANES)
INLINE long packed_size(long k, long n) { return k * ((n + PANEL - 1) / PANEL * PANEL); }

static void pack(long k, long n, const float *b, long rs, long cs, float *out) {
    for (long j = 0; j < n; j += PANEL, out += PANEL * k)
        for (long p = 0; p < k; p += 8)
            for (long q = 0; q < PANEL; q += 8) {
                const float *from = b + p * rs + (j + q) * cs;
                float *to = out + p * PANEL + q;
                long rows = smaller(8, k - p), whole = rows == 8 && j + q + 8 <= n;
                if (whole && rs == 1) transpose8(from, cs, to, PANEL);
                else if (whole) EACH(r, 8) V8(to + r * PANEL) = C8(from + r * rs);
                else
                    for (long r = 0; r < rows; r++)
                        for (long t = 0; t < 8; t++) to[r * PANEL + t] = j + q + t < n ? from[r * rs + t * cs] : 0.0f;
            }
}

/* The same as `product` with a packed B. */
static void product_packed(long m, long n, long k, const float *a, long rs, long cs, const float *b, float *c,
                           long ldc, int add) {
    for (long j = 0; j < n; j += PANEL)
        product(m, smaller(PANEL, n - j), k, a, rs, cs, b + j * k, PANEL, c + j, ldc, add);
}

/* in (rows, cols) to out (cols, rows), both filled up: all of rows and cols are multiples of 8. */
static void transpose(long rows, long cols, const float *in, long ldi, float *out, long ldo) {
    for (long i = 0; i < rows; i += 8)
        for (long j = 0; j < cols; j += 8) transpose8(in + i * ldi + j, ldi, out + j * ldo + i, ldo);
}

/* Numbers that are needed soon: products read several rows at once, which hardware does not foresee. */
INLINE void expect(const float *p, long count) {
    for (long t = 0; t < count; t += 16) __builtin_prefetch(p + t);
}

/* Contiguous rows (k, m) to (m, kp): here m may be anything, too. */
static void turn_rows(long k, long m, const float *in, float *out) {
    long kp = filled(k);
    for (long slot = 0; slot < kp; slot += 8)
        for (long t = 0; t < m; t += 8) {
            long from = smaller(t, m - 8); /* the last block overlaps the one before it */
            if (slot + 8 <= k && m >= 8) transpose8(in + slot * m + from, m, out + from * kp + slot, kp);
            else
                for (long u = t; u < smaller(t + 8, m); u++)
                    for (long q = slot; q < slot + 8; q++) out[u * kp + q] = q < k ? in[q * m + u] : 0.0f;
        }
}

/* Rows of a tensor (b, h, n, .) through strides; rows themselves are contiguous. Absent: at = 0. */
typedef struct {
    float *at;
    long graph, head, node;
} Heads;
#define ROW(x, i, head_, j) ((x).at + (i) * (x).graph + (head_) * (x).head + (j) * (x).node)
