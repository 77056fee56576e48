/* The fused ops in float32, a few rows at a time, so that what they work on stays in the nearest cache.

   Built on first use where a C compiler is at hand (see __init__.py); the torch code beside it computes the
   same and is what everything falls back to. Letters: g graphs, h heads, n sources, r rows (head, source),
   k slots of e1, l slots of e2, m targets, c pairs (slot, target), d width of keys, w width of values; d and
   w are multiples of 16, and cp is c filled up to one. Threads take whole graphs. Nothing here allocates:
   the caller gives `work`, one slice per thread. */

#include <math.h>
#include <string.h>
#include <omp.h>

typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int v8i __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))
#define SET(x) ((v8){x, x, x, x, x, x, x, x})

/* ROWS x 16 block of C (+)= A B, kept in registers. A is read through two strides, so it may be transposed. */
#define BLOCK(ROWS)                                                                             \
    static void block##ROWS(long k, const float *a, long rs, long cs, const float *b, long ldb, \
                            float *c, long ldc, int add) {                                      \
        v8 lo[ROWS], hi[ROWS];                                                                  \
        for (int i = 0; i < ROWS; i++) {                                                        \
            lo[i] = add ? *(const v8 *)(c + i * ldc) : SET(0.0f);                               \
            hi[i] = add ? *(const v8 *)(c + i * ldc + 8) : SET(0.0f);                           \
        }                                                                                       \
        for (long p = 0; p < k; p++) {                                                          \
            v8 b0 = *(const v8 *)(b + p * ldb), b1 = *(const v8 *)(b + p * ldb + 8);            \
            for (int i = 0; i < ROWS; i++) {                                                    \
                v8 x = SET(a[i * rs + p * cs]);                                                 \
                lo[i] += x * b0;                                                                \
                hi[i] += x * b1;                                                                \
            }                                                                                   \
        }                                                                                       \
        for (int i = 0; i < ROWS; i++) {                                                        \
            *(v8 *)(c + i * ldc) = lo[i];                                                       \
            *(v8 *)(c + i * ldc + 8) = hi[i];                                                   \
        }                                                                                       \
    }
BLOCK(6)
BLOCK(1)

/* The part of B that a pass works with: 16 columns of this many rows stay in the first cache. */
#define DEPTH 216

/* C (m x n) (+)= A (m x k) B (k x n); n is a multiple of 16. */
static void product(long m, long n, long k, const float *a, long rs, long cs, const float *b, long ldb,
                    float *c, long ldc, int add) {
    for (long from = 0; from < k; from += DEPTH, add = 1) {
        long depth = k - from < DEPTH ? k - from : DEPTH;
        const float *part = a + from * cs, *below = b + from * ldb;
        for (long j = 0; j < n; j += 16) {
            long i = 0;
            for (; i + 6 <= m; i += 6)
                block6(depth, part + i * rs, rs, cs, below + j, ldb, c + i * ldc + j, ldc, add);
            for (; i < m; i++)
                block1(depth, part + i * rs, rs, cs, below + j, ldb, c + i * ldc + j, ldc, add);
        }
    }
}

/* exp for x <= 0, within 2 units in the last place; below -87 it is 0. */
INLINE v8 exponential(v8 x) {
    v8i tiny = x < SET(-87.0f);
    x = (v8)(((v8i)x & ~tiny) | ((v8i)SET(-87.0f) & tiny));
    v8 n = x * SET(1.44269504f) - SET(0.5f);
    v8i whole = __builtin_convertvector(n, v8i); /* towards 0, so rounding to nearest for x <= 0 */
    n = __builtin_convertvector(whole, v8);
    v8 r = x - n * SET(0.693359375f) - n * SET(-2.12194440e-4f);
    v8 p = SET(1.9875691500e-4f);
    p = p * r + SET(1.3981999507e-3f);
    p = p * r + SET(8.3334519073e-3f);
    p = p * r + SET(4.1665795894e-2f);
    p = p * r + SET(1.6666665459e-1f);
    p = p * r + SET(5.0000001201e-1f);
    p = p * r * r + r + SET(1.0f);
    v8 y = p * (v8)((whole + 127) << 23);
    return (v8)((v8i)y & ~tiny);
}

INLINE float total(v8 x) { return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7])); }

INLINE float largest(v8 x) {
    float best = x[0];
    for (int i = 1; i < 8; i++) best = x[i] > best ? x[i] : best;
    return best;
}

/* Rows of logits (l slots of m, padded to cp) plus a bias per target, to softmax weights; padding becomes 0. */
static void softmax_rows(long rows, long l, long m, long cp, float *s, const float *bias) {
    long c = l * m;
    for (long i = 0; i < rows; i++, s += cp, bias += m) {
        for (long slot = 0; slot < l; slot++)
            for (long t = 0; t < m; t++) s[slot * m + t] += bias[t];
        for (long t = c; t < cp; t++) s[t] = -INFINITY;
        v8 top = *(const v8 *)s;
        for (long t = 8; t < cp; t += 8) {
            v8 x = *(const v8 *)(s + t);
            v8i more = x > top;
            top = (v8)(((v8i)x & more) | ((v8i)top & ~more));
        }
        v8 most = SET(largest(top)), sum = SET(0.0f);
        for (long t = 0; t < cp; t += 8) {
            v8 x = exponential(*(const v8 *)(s + t) - most);
            *(v8 *)(s + t) = x;
            sum += x;
        }
        v8 scale = SET(1.0f / total(sum));
        for (long t = 0; t < cp; t += 8) *(v8 *)(s + t) *= scale;
    }
}

static void sum_slots(long rows, long l, long m, long cp, const float *s, float *out) {
    for (long i = 0; i < rows; i++, s += cp, out += m) {
        memcpy(out, s, m * sizeof(float));
        for (long slot = 1; slot < l; slot++)
            for (long t = 0; t < m; t++) out[t] += s[slot * m + t];
    }
}

/* dW + dn2 to dS = W (dW - <W, dW>), in place of dW. */
static void softmax_back(long rows, long l, long m, long cp, const float *w, float *dw, const float *dn2) {
    for (long i = 0; i < rows; i++, w += cp, dw += cp, dn2 += m) {
        for (long slot = 0; slot < l; slot++)
            for (long t = 0; t < m; t++) dw[slot * m + t] += dn2[t];
        v8 dot = SET(0.0f);
        for (long t = 0; t < cp; t += 8) dot += *(const v8 *)(w + t) * *(const v8 *)(dw + t);
        v8 mean = SET(total(dot));
        for (long t = 0; t < cp; t += 8)
            *(v8 *)(dw + t) = *(const v8 *)(w + t) * (*(const v8 *)(dw + t) - mean);
    }
}

/* Transposed copies: keys (c, d) to (d, cp), values (c, w) to (w, cp), padding 0. */
static void transpose(long c, long width, long cp, const float *in, float *out) {
    for (long j = 0; j < width; j++) {
        for (long t = 0; t < c; t++) out[j * cp + t] = in[t * width + j];
        for (long t = c; t < cp; t++) out[j * cp + t] = 0.0f;
    }
}

static float *own_slice(float *work, long size) { return work + size * omp_get_thread_num(); }

#define TILE 48

/* Joint referral: sizes and tensors. Rows r of a graph are u sets of r / u, each with keys of its own; `more`
   are values of its own, too, beside the `values` that all sets share (v = 0: none). The first `depth` of
   the d columns of queries and keys are not padding. */
typedef struct {
    long g, u, r, l, m, d, w, v, depth;
    const float *bias;    /* g r m */
    const float *queries; /* g r d */
    const float *keys;    /* g u c d */
    const float *values;  /* g c w */
    const float *more;    /* g u c v */
} Referral;

/* Numbers of `work` per thread. */
long gm_refer_work(long c, long d, long w, long v) {
    long cp = (c + 15) / 16 * 16;
    return TILE * cp * 2 + cp * (d + w + v) + 64;
}

/* outs (g, r, w), more_outs (g, r, v), n2 weights (g, r, m). */
void gm_refer(const Referral *x, float *outs, float *more_outs, float *n2, float *work, int threads) {
    long l = x->l, m = x->m, d = x->d, w = x->w, v = x->v, rows_of_set = x->r / x->u;
    long c = l * m, cp = (c + 15) / 16 * 16, size = gm_refer_work(c, d, w, v);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (long i = 0; i < x->g; i++) {
        float *s = own_slice(work, size), *kt = s + 2 * TILE * cp;
        for (long set = i * x->u; set < (i + 1) * x->u; set++) {
            transpose(c, d, cp, x->keys + set * c * d, kt);
            for (long from = 0; from < rows_of_set; from += TILE) {
                long rows = rows_of_set - from < TILE ? rows_of_set - from : TILE;
                long at = set * rows_of_set + from;
                product(rows, cp, x->depth, x->queries + at * d, d, 1, kt, cp, s, cp, 0);
                softmax_rows(rows, l, m, cp, s, x->bias + at * m);
                product(rows, w, c, s, cp, 1, x->values + i * c * w, w, outs + at * w, w, 0);
                if (v) product(rows, v, c, s, cp, 1, x->more + set * c * v, v, more_outs + at * v, v, 0);
                sum_slots(rows, l, m, cp, s, n2 + at * m);
            }
        }
    }
}

typedef struct {
    const float *outs, *more_outs, *n2;               /* given: g r w, g r v, g r m */
    float *bias, *queries, *keys, *values, *more, *weights; /* made; `weights` are the n2 weights again */
} ReferralGrads;

void gm_refer_backward(const Referral *x, const ReferralGrads *grads, float *work, int threads) {
    long l = x->l, m = x->m, d = x->d, w = x->w, v = x->v, rows_of_set = x->r / x->u;
    long c = l * m, cp = (c + 15) / 16 * 16, size = gm_refer_work(c, d, w, v);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (long i = 0; i < x->g; i++) {
        float *s = own_slice(work, size), *ds = s + TILE * cp, *kt = ds + TILE * cp, *vt = kt + d * cp;
        float *mt = vt + w * cp;
        transpose(c, w, cp, x->values + i * c * w, vt);
        for (long set = i * x->u; set < (i + 1) * x->u; set++) {
            transpose(c, d, cp, x->keys + set * c * d, kt);
            if (v) transpose(c, v, cp, x->more + set * c * v, mt);
            for (long from = 0; from < rows_of_set; from += TILE) {
                long rows = rows_of_set - from < TILE ? rows_of_set - from : TILE;
                long at = set * rows_of_set + from;
                int add = from > 0, add_shared = add || set > i * x->u;
                const float *above = grads->outs + at * w, *more_above = grads->more_outs + at * v;
                product(rows, cp, x->depth, x->queries + at * d, d, 1, kt, cp, s, cp, 0);
                softmax_rows(rows, l, m, cp, s, x->bias + at * m);
                sum_slots(rows, l, m, cp, s, grads->weights + at * m);
                product(rows, cp, w, above, w, 1, vt, cp, ds, cp, 0);
                product(c, w, rows, s, 1, cp, above, w, grads->values + i * c * w, w, add_shared);
                if (v) {
                    product(rows, cp, v, more_above, v, 1, mt, cp, ds, cp, 1);
                    product(c, v, rows, s, 1, cp, more_above, v, grads->more + set * c * v, v, add);
                }
                softmax_back(rows, l, m, cp, s, ds, grads->n2 + at * m);
                sum_slots(rows, l, m, cp, ds, grads->bias + at * m);
                product(rows, d, c, ds, cp, 1, x->keys + set * c * d, d, grads->queries + at * d, d, 0);
                product(c, d, rows, ds, 1, cp, x->queries + at * d, d, grads->keys + set * c * d, d, add);
            }
        }
    }
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
    v8 p = SET(7.0376836292e-2f);
    p = p * f + SET(-1.1514610310e-1f);
    p = p * f + SET(1.1676998740e-1f);
    p = p * f + SET(-1.2420140846e-1f);
    p = p * f + SET(1.4249322787e-1f);
    p = p * f + SET(-1.6668057665e-1f);
    p = p * f + SET(2.0000714765e-1f);
    p = p * f + SET(-2.4999993993e-1f);
    p = p * f + SET(3.3333331174e-1f);
    p = p * f * z + n * SET(-2.12194440e-4f) - SET(0.5f) * z;
    v8i odd = x != x; /* NaN stays NaN */
    return (v8)((v8i)(f + p + n * SET(0.693359375f)) | odd);
}

INLINE v8 at_least(v8 x, float bound) {
    v8i less = x < SET(bound);
    return (v8)(((v8i)x & ~less) | ((v8i)SET(bound) & less));
}

#define MASKED -1e30f
#define V(p) (*(v8 *)(p))

/* Rows of m numbers are worked on in buffers of mp = m filled up to a multiple of 8. */
INLINE long filled(long m) { return (m + 7) / 8 * 8; }

/* Exponentials of a row in `p`; returns their sum, `top` the largest entry. Fill is -inf. */
static float exponentials(long mp, const float *f, float *p, float *top) {
    v8 best = V(f);
    for (long t = 8; t < mp; t += 8) {
        v8 x = V(f + t);
        v8i more = x > best;
        best = (v8)(((v8i)x & more) | ((v8i)best & ~more));
    }
    *top = largest(best);
    v8 most = SET(*top), sum = SET(0.0f);
    for (long t = 0; t < mp; t += 8) {
        v8 x = exponential(V(f + t) - most);
        V(p + t) = x;
        sum += x;
    }
    return total(sum);
}

/* Entropy of softmax(f): log Z + <p, max - f>, of which neither is negative. */
static float entropy(long m, long mp, float *f, float *p) {
    for (long t = m; t < mp; t++) f[t] = -1e38f;
    float top, z = exponentials(mp, f, p, &top);
    v8 dot = SET(0.0f);
    for (long t = 0; t < mp; t += 8) dot += V(p + t) * (SET(top) - V(f + t));
    return logf(z) + total(dot) / z;
}

/* grad -= weight * p (f - <p, f>): the slope of the entropy. */
static void entropy_back(long m, long mp, float *f, float *p, float weight, float *grad) {
    for (long t = m; t < mp; t++) f[t] = -1e38f;
    float top, z = exponentials(mp, f, p, &top);
    v8 dot = SET(0.0f), scale = SET(1.0f / z);
    for (long t = 0; t < mp; t += 8) dot += V(p + t) * (V(f + t) - SET(top));
    v8 mean = SET(total(dot) / z);
    for (long t = 0; t < mp; t += 8)
        V(grad + t) -= SET(weight) * V(p + t) * scale * (V(f + t) - SET(top) - mean);
}

INLINE void add_scaled(long m, float x, const float *in, float *out) {
    for (long t = 0; t < m; t++) out[t] += x * in[t];
}

INLINE float dot_rows(long m, const float *a, const float *b) {
    float sum = 0.0f;
    for (long t = 0; t < m; t++) sum += a[t] * b[t];
    return sum;
}

/* What decides where n1 looks; absent parts are null. Shapes as in factors.py, contiguous; the keys of
   the node expert come as (g, h, d, m), target innermost. */
typedef struct {
    long g, h, n, k, m, d;
    const float *e1_weights, *addresses, *edge_temps; /* g n h k, g n k m, g n h */
    const float *queries, *keys;                      /* g h n d, g h d m */
    const unsigned char *mask;                        /* read through two strides */
    const float *entropy_weights;
    long mask_graph, mask_source, weight_graph, weight_source;
    float eps;
    int logit_space;
} Factors;

/* The edge factor of one row: mixed addresses, what their logarithm is taken of, logits, factors. */
static void edge_row(const Factors *x, long i, long j, long head, float *mixed, float *floor_, float *logits,
                     float *factors) {
    long m = x->m, mp = filled(m), k = x->k;
    const float *weights = x->e1_weights + ((i * x->n + j) * x->h + head) * k;
    const float *addresses = x->addresses + (i * x->n + j) * k * m;
    memset(mixed, 0, mp * sizeof(float));
    for (long slot = 0; slot < k; slot++) add_scaled(m, weights[slot], addresses + slot * m, mixed);
    float temp = x->edge_temps ? x->edge_temps[(i * x->n + j) * x->h + head] : 1.0f;
    for (long t = 0; t < mp; t += 8) {
        v8 value = V(mixed + t);
        if (!x->logit_space) {
            value = at_least(value, x->eps);
            V(floor_ + t) = value;
            value = logarithm(value);
        }
        V(logits + t) = value;
        V(factors + t) = SET(temp) * value;
    }
}

static void node_row(const Factors *x, long i, long j, long head, float *factors) {
    const float *query = x->queries + ((i * x->h + head) * x->n + j) * x->d;
    const float *keys = x->keys + (i * x->h + head) * x->d * x->m;
    memset(factors, 0, filled(x->m) * sizeof(float));
    for (long p = 0; p < x->d; p++) add_scaled(x->m, query[p], keys + p * x->m, factors);
}

static void mask_row(const Factors *x, long i, long j, float *factors) {
    if (!x->mask) return;
    const unsigned char *mask = x->mask + i * x->mask_graph + j * x->mask_source;
    for (long t = 0; t < x->m; t++)
        if (!mask[t]) factors[t] = MASKED;
}

/* Numbers of `work` per thread for the functions on factors. */
long gm_factor_work(long m) { return 8 * filled(m) + 64; }

/* n2 factors (g, h, n, m); adds the weighted entropies of graph i to entropies[2 i] and [2 i + 1]. */
void gm_factors(const Factors *x, float *out, double *entropies, float *work, int threads) {
    long m = x->m, mp = filled(m), size = gm_factor_work(m);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (long i = 0; i < x->g; i++) {
        float *a = own_slice(work, size), *b = a + mp, *c = b + mp, *edge = c + mp, *node = edge + mp;
        float *p = node + mp;
        for (long j = 0; j < x->n; j++) {
            float weight = 0.0f;
            if (x->entropy_weights)
                weight = x->entropy_weights[i * x->weight_graph + j * x->weight_source];
            for (long head = 0; head < x->h; head++) {
                float *row = out + ((i * x->h + head) * x->n + j) * m;
                memset(row, 0, m * sizeof(float));
                if (x->e1_weights) {
                    edge_row(x, i, j, head, a, b, c, edge);
                    mask_row(x, i, j, edge);
                    if (x->entropy_weights && entropies)
                        entropies[2 * i] += (double)weight * entropy(m, mp, edge, p);
                    add_scaled(m, 1.0f, edge, row);
                }
                if (x->queries) {
                    node_row(x, i, j, head, node);
                    mask_row(x, i, j, node);
                    if (x->entropy_weights && entropies)
                        entropies[2 * i + 1] += (double)weight * entropy(m, mp, node, p);
                    add_scaled(m, 1.0f, node, row);
                }
            }
        }
    }
}

/* Gradients from those of the n2 factors, `grads` (g, h, n, m). d_addresses and d_keys are written whole. */
void gm_factors_backward(const Factors *x, const float *grads, float edge_slope, float node_slope,
                         float *d_e1_weights, float *d_addresses, float *d_edge_temps, float *d_queries,
                         float *d_keys, float *work, int threads) {
    long m = x->m, mp = filled(m), size = gm_factor_work(m), k = x->k, d = x->d;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (long i = 0; i < x->g; i++) {
        float *mixed = own_slice(work, size), *floor_ = mixed + mp, *logits = floor_ + mp;
        float *factors = logits + mp, *p = factors + mp, *delta = p + mp;
        if (x->queries) memset(d_keys + i * x->h * d * m, 0, x->h * d * m * sizeof(float));
        for (long j = 0; j < x->n; j++) {
            float weight = 0.0f;
            if (x->entropy_weights)
                weight = x->entropy_weights[i * x->weight_graph + j * x->weight_source];
            if (x->e1_weights) memset(d_addresses + (i * x->n + j) * k * m, 0, k * m * sizeof(float));
            for (long head = 0; head < x->h; head++) {
                const float *grad = grads + ((i * x->h + head) * x->n + j) * m;
                if (x->e1_weights) {
                    long at = (i * x->n + j) * x->h + head;
                    edge_row(x, i, j, head, mixed, floor_, logits, factors);
                    memset(delta, 0, mp * sizeof(float));
                    memcpy(delta, grad, m * sizeof(float));
                    if (x->entropy_weights) {
                        mask_row(x, i, j, factors);
                        entropy_back(m, mp, factors, p, weight * edge_slope, delta);
                    }
                    if (x->edge_temps) {
                        d_edge_temps[at] = dot_rows(m, delta, logits);
                        for (long t = 0; t < m; t++) delta[t] *= x->edge_temps[at];
                    }
                    if (!x->logit_space)
                        for (long t = 0; t < m; t++)
                            delta[t] = mixed[t] >= x->eps ? delta[t] / floor_[t] : 0.0f;
                    const float *addresses = x->addresses + (i * x->n + j) * k * m;
                    float *out = d_addresses + (i * x->n + j) * k * m;
                    for (long slot = 0; slot < k; slot++) {
                        d_e1_weights[at * k + slot] = dot_rows(m, delta, addresses + slot * m);
                        add_scaled(m, x->e1_weights[at * k + slot], delta, out + slot * m);
                    }
                }
                if (x->queries) {
                    long at = (i * x->h + head) * x->n + j;
                    memset(delta, 0, mp * sizeof(float));
                    memcpy(delta, grad, m * sizeof(float));
                    if (x->entropy_weights) {
                        node_row(x, i, j, head, factors);
                        mask_row(x, i, j, factors);
                        entropy_back(m, mp, factors, p, weight * node_slope, delta);
                    }
                    const float *keys = x->keys + (i * x->h + head) * d * m;
                    float *out = d_keys + (i * x->h + head) * d * m;
                    for (long q = 0; q < d; q++) {
                        d_queries[at * d + q] = dot_rows(m, delta, keys + q * m);
                        add_scaled(m, x->queries[at * d + q], delta, out + q * m);
                    }
                }
            }
        }
    }
}

/* Numbers of `work` per thread for attention. */
long gm_attend_work(long n, long m, long w) {
    long cp = (m + 15) / 16 * 16;
    return 2 * n * cp + cp * w + 64;
}

/* logits (x, n, m) of x = graphs times heads, values (x, m, w) -> outs (x, n, w). */
void gm_attend(long x, long n, long m, long w, const float *logits, const float *values, float *outs,
               float *work, int threads) {
    long cp = (m + 15) / 16 * 16, size = gm_attend_work(n, m, w);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long i = 0; i < x; i++) {
        float *s = own_slice(work, size);
        memset(s, 0, n * cp * sizeof(float));
        softmax_rows(n, 1, m, cp, s, logits + i * n * m);
        product(n, w, m, s, cp, 1, values + i * m * w, w, outs + i * n * w, w, 0);
    }
}

/* d_outs (x, n, w) -> d_logits (x, n, m), d_values (x, m, w). */
void gm_attend_backward(long x, long n, long m, long w, const float *logits, const float *values,
                        const float *d_outs, float *d_logits, float *d_values, float *work, int threads) {
    long cp = (m + 15) / 16 * 16, size = gm_attend_work(n, m, w);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long i = 0; i < x; i++) {
        float *s = own_slice(work, size), *ds = s + n * cp, *vt = ds + n * cp;
        const float *above = d_outs + i * n * w;
        memset(s, 0, n * cp * sizeof(float));
        softmax_rows(n, 1, m, cp, s, logits + i * n * m);
        transpose(m, w, cp, values + i * m * w, vt);
        product(m, w, n, s, 1, cp, above, w, d_values + i * m * w, w, 0);
        product(n, cp, w, above, w, 1, vt, cp, ds, cp, 0);
        for (long j = 0; j < n; j++) {
            float *row = ds + j * cp, *out = d_logits + (i * n + j) * m;
            const float *weights = s + j * cp;
            float mean = dot_rows(m, weights, row);
            for (long t = 0; t < m; t++) out[t] = weights[t] * (row[t] - mean);
        }
    }
}

/* softmax(temp * log(max(x, eps))) of rows of m numbers. `mask` is null or has a row per `mask_rows` rows
   through two strides, as the factors' masks: graphs of n sources with k slots each. */
void gm_sharpen(long g, long n, long k, long m, const float *x, const float *temps, const unsigned char *mask,
                long mask_graph, long mask_source, float eps, float *out, float *work, int threads) {
    long mp = filled(m), size = gm_factor_work(m);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long at = 0; at < g * n; at++) {
        float *f = own_slice(work, size), *p = f + mp;
        const unsigned char *seen = mask ? mask + at / n * mask_graph + at % n * mask_source : 0;
        for (long row = at * k; row < (at + 1) * k; row++) {
            memset(f, 0, mp * sizeof(float));
            memcpy(f, x + row * m, m * sizeof(float));
            for (long t = 0; t < mp; t += 8) V(f + t) = SET(temps[row]) * logarithm(at_least(V(f + t), eps));
            for (long t = m; t < mp; t++) f[t] = -1e38f;
            if (seen)
                for (long t = 0; t < m; t++)
                    if (!seen[t]) f[t] = MASKED;
            float top, z = exponentials(mp, f, p, &top);
            for (long t = 0; t < m; t++) out[row * m + t] = seen && !seen[t] ? 0.0f : p[t] / z;
        }
    }
}

void gm_sharpen_backward(long rows, long m, const float *grads, const float *x, const float *temps,
                         const float *outs, float eps, float *d_x, float *d_temps, float *work,
                         int threads) {
    long mp = filled(m), size = gm_factor_work(m);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < rows; row++) {
        float *floor_ = own_slice(work, size), *logits = floor_ + mp, sum = 0.0f, slope = 0.0f;
        const float *grad = grads + row * m, *in = x + row * m, *out = outs + row * m;
        memset(floor_, 0, mp * sizeof(float));
        memcpy(floor_, in, m * sizeof(float));
        for (long t = 0; t < mp; t += 8) {
            V(floor_ + t) = at_least(V(floor_ + t), eps);
            V(logits + t) = logarithm(V(floor_ + t));
        }
        for (long t = 0; t < m; t++) sum += grad[t] * out[t];
        for (long t = 0; t < m; t++) {
            float delta = out[t] * (grad[t] - sum);
            slope += delta * logits[t];
            d_x[row * m + t] = in[t] >= eps ? delta * temps[row] / floor_[t] : 0.0f;
        }
        d_temps[row] = slope;
    }
}
