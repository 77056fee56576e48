/* A projection of every row into heads: some parts normed to unit RMS (QK-norm), some made temperatures, the others
   as they are; and back, all gradients into one row. */

#include "common.h"

#define MOST_PARTS 8
enum { AS_IS, UNIT_RMS, SOFTPLUS, EXPONENTIAL };

/* A row is its parts side by side, each of h heads; widths are 1 for temperatures, else multiples of 8. */
typedef struct {
    long rows, h, width, count;
    long widths[MOST_PARTS], kinds[MOST_PARTS];
    float eps, shift;
} Split;

typedef struct {
    float *at[MOST_PARTS]; /* contiguous (rows, h, width); absent: null */
} SplitParts;

INLINE v8 where(v8i take, v8 a, v8 b) { return (v8)(((v8i)a & take) | ((v8i)b & ~take)); }

/* log(1 + exp(z)) without loss for small exponentials, as log1p. */
INLINE v8 softplus(v8 z) {
    v8 e = exponential(smaller_of(SET(20.0f), z)), u = SET(1.0f) + e, gap = u - SET(1.0f);
    v8 low = where(gap == SET(0.0f), e, logarithm(u) * (e / where(gap == SET(0.0f), SET(1.0f), gap)));
    return where(z > SET(20.0f), z, low);
}

INLINE v8 softplus_slope(v8 z) { return SET(1.0f) / (SET(1.0f) + exponential(smaller_of(SET(88.0f), -z))); }

INLINE v8 load_at(const float *p, long left) { return left >= 8 ? C(p) : load_part(p, left); }
INLINE void store_at(float *p, long left, v8 x) {
    if (left >= 8) V(p) = x;
    else store_part(p, left, x);
}

INLINE float inverse_rms_of(long d, const float *x, float eps) {
    v8 sum = SET(0.0f);
    for (long t = 0; t < d; t += 8) sum += C(x + t) * C(x + t);
    return 1.0f / sqrtf(total(sum) / d + eps);
}

void gm_heads(const Split *x, const float *in, const SplitParts *outs, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < x->rows; row++) {
        const float *from = in + row * x->width;
        for (long part = 0; part < x->count; part++) {
            long d = x->widths[part], kind = x->kinds[part], size = x->h * d;
            float *to = outs->at[part] + row * size;
            if (kind == UNIT_RMS)
                for (long head = 0; head < x->h; head++) {
                    v8 scale = SET(inverse_rms_of(d, from + head * d, x->eps));
                    for (long t = head * d; t < head * d + d; t += 8) V(to + t) = C(from + t) * scale;
                }
            else
                for (long t = 0; t < size; t += 8) {
                    v8 z = load_at(from + t, size - t);
                    if (kind == SOFTPLUS) z = softplus(z + SET(x->shift));
                    else if (kind == EXPONENTIAL) z = exponential(smaller_of(SET(88.7f), z));
                    store_at(to + t, size - t, z);
                }
            from += size;
        }
    }
}

/* Gradients `above` of the parts (rows of (h, width), through a stride per row) to that of the projection. */
void gm_heads_backward(const Split *x, const float *in, const SplitParts *above, float *d_in, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < x->rows; row++) {
        const float *from = in + row * x->width;
        float *to = d_in + row * x->width;
        for (long part = 0; part < x->count; part++) {
            long d = x->widths[part], kind = x->kinds[part], size = x->h * d;
            const float *g = above->at[part] + row * size;
            if (!above->at[part]) memset(to, 0, size * sizeof(float));
            else if (kind == UNIT_RMS)
                for (long head = 0; head < x->h; head++) {
                    const float *own = from + head * d, *given = g + head * d;
                    float scale = inverse_rms_of(d, own, x->eps);
                    v8 dot = SET(0.0f);
                    for (long t = 0; t < d; t += 8) dot += C(own + t) * C(given + t);
                    v8 share = SET(scale * scale * scale * total(dot) / d), inv = SET(scale);
                    for (long t = 0; t < d; t += 8) V(to + head * d + t) = inv * C(given + t) - share * C(own + t);
                }
            else
                for (long t = 0; t < size; t += 8) {
                    v8 z = load_at(from + t, size - t), slope = load_at(g + t, size - t);
                    if (kind == SOFTPLUS) slope *= softplus_slope(z + SET(x->shift));
                    else if (kind == EXPONENTIAL) slope *= exponential(smaller_of(SET(88.7f), z));
                    store_at(to + t, size - t, slope);
                }
            from += size, to += size;
        }
    }
}
