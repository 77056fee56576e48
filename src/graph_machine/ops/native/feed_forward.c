/* What is done to every row alike: RMS norm, and the feed-forward network with its norm and residual. */

#include "common.h"

/* Rows that are worked on together. */
#define TILE 48

/* 1 / sqrt(mean(x^2) + eps) of a row; d is a multiple of 8. */
INLINE float inverse_rms(long d, const float *x, float eps) {
    v8 sum = SET(0.0f);
    for (long t = 0; t < d; t += 8) sum += C(x + t) * C(x + t);
    return 1.0f / sqrtf(total(sum) / d + eps);
}

INLINE void norm_row(long d, const float *x, const float *weight, float scale, float *out) {
    for (long t = 0; t < d; t += 8) V(out + t) = C(x + t) * SET(scale) * C(weight + t);
}

/* dx = given + scale (weight dy - xhat <weight dy, xhat> / d), d_weight += dy xhat; `given` may be null. */
INLINE void norm_back(long d, const float *x, const float *weight, float scale, const float *dy, const float *given,
                      float *dx, float *d_weight) {
    v8 dot = SET(0.0f);
    for (long t = 0; t < d; t += 8) {
        v8 hat = C(x + t) * SET(scale);
        V(d_weight + t) += C(dy + t) * hat;
        dot += C(dy + t) * C(weight + t) * hat;
    }
    v8 mean = SET(total(dot) / d * scale);
    for (long t = 0; t < d; t += 8) {
        v8 slope = SET(scale) * (C(dy + t) * C(weight + t) - C(x + t) * mean);
        if (given) slope += C(given + t);
        V(dx + t) = slope;
    }
}

void gm_norm(long rows, long d, const float *x, const float *weight, float eps, float *outs, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long r = 0; r < rows; r++) norm_row(d, x + r * d, weight, inverse_rms(d, x + r * d, eps), outs + r * d);
}

/* d_weights (threads, d) come zeroed. */
void gm_norm_backward(long rows, long d, const float *x, const float *weight, float eps, const float *d_outs,
                      float *d_x, float *d_weights, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long r = 0; r < rows; r++)
        norm_back(d, x + r * d, weight, inverse_rms(d, x + r * d, eps), d_outs + r * d, 0, d_x + r * d,
                  d_weights + omp_get_thread_num() * d);
}

/* x + down(silu(gate xn) * up xn), xn = norm(x): d wide, f hidden, both multiples of 8. */
typedef struct {
    long rows, d, f;
    const float *x, *norm, *gate_up, *down; /* rows d, d, 2f d, d f */
    float eps;
} Ffn;

/* Hidden rows are a little apart of a power of two. */
INLINE long hidden_ld(const Ffn *x) { return 2 * x->f + 8; }

/* Numbers of `work`: packed matrices for all threads, then a slice for each. */
long gm_ffn_shared(const Ffn *x) {
    long in = packed_size(x->d, 2 * x->f), out = packed_size(x->f, x->d);
    return in + out + packed_size(2 * x->f, x->d) + packed_size(x->d, x->f);
}

long gm_ffn_work(const Ffn *x) { return TILE * (2 * hidden_ld(x) + 2 * x->d) + TILE + 64; }

INLINE v8 sigmoid(v8 x) { return SET(1.0f) / (SET(1.0f) + exponential(smaller_of(SET(88.0f), -x))); }

/* Normed rows of a tile, and gate and up of them; `scale` keeps 1 / rms. */
static void hidden_tile(const Ffn *x, const float *packed, long at, long rows, float *normed, float *scale,
                        float *hidden) {
    for (long r = 0; r < rows; r++) {
        const float *row = x->x + (at + r) * x->d;
        scale[r] = inverse_rms(x->d, row, x->eps);
        norm_row(x->d, row, x->norm, scale[r], normed + r * x->d);
    }
    product_packed(rows, 2 * x->f, x->d, normed, x->d, 1, packed, hidden, hidden_ld(x), 0);
}

void gm_ffn(const Ffn *x, float *outs, float *work, int threads) {
    long d = x->d, f = x->f, ld = hidden_ld(x), size = gm_ffn_work(x);
    float *in = work, *out = in + packed_size(d, 2 * f), *rest = work + gm_ffn_shared(x);
    pack(d, 2 * f, x->gate_up, 1, d, in);
    pack(f, d, x->down, 1, f, out);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long at = 0; at < x->rows; at += TILE) {
        long rows = smaller(TILE, x->rows - at);
        float *hidden = own_slice(rest, size), *normed = hidden + TILE * ld, *scale = normed + TILE * d;
        hidden_tile(x, in, at, rows, normed, scale, hidden);
        for (long r = 0; r < rows; r++) {
            float *row = hidden + r * ld;
            for (long t = 0; t < f; t += 8) V(row + t) = C(row + t) * sigmoid(C(row + t)) * C(row + f + t);
        }
        memcpy(outs + at * d, x->x + at * d, rows * d * sizeof(float));
        product_packed(rows, d, f, hidden, ld, 1, out, outs + at * d, d, 1);
    }
}

/* Gradients of parameters, one set per thread: (threads, 2 f d + d f + d), come zeroed. */
void gm_ffn_backward(const Ffn *x, const float *d_outs, float *d_x, float *d_parameters, float *work, int threads) {
    long d = x->d, f = x->f, ld = hidden_ld(x), size = gm_ffn_work(x);
    float *in = work, *down = in + packed_size(d, 2 * f), *gate_up = down + packed_size(d, f);
    float *rest = work + gm_ffn_shared(x);
    pack(d, 2 * f, x->gate_up, 1, d, in);
    pack(d, f, x->down, f, 1, down);
    pack(2 * f, d, x->gate_up, d, 1, gate_up);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long at = 0; at < x->rows; at += TILE) {
        long rows = smaller(TILE, x->rows - at);
        float *hidden = own_slice(rest, size), *act = hidden + TILE * ld, *normed = act + TILE * ld;
        float *slope = normed + TILE * d, *scale = slope + TILE * d;
        float *d_gate_up = d_parameters + omp_get_thread_num() * (3 * f * d + d);
        float *d_down = d_gate_up + 2 * f * d, *d_norm = d_down + d * f;
        const float *above = d_outs + at * d;
        hidden_tile(x, in, at, rows, normed, scale, hidden);
        product_packed(rows, f, d, above, d, 1, down, act, ld, 0);
        for (long r = 0; r < rows; r++) {
            float *gate = hidden + r * ld, *up = gate + f, *row = act + r * ld;
            for (long t = 0; t < f; t += 8) {
                v8 g = C(gate + t), u = C(up + t), da = C(row + t), s = sigmoid(g), silu = g * s;
                V(row + t) = silu * u;
                V(up + t) = da * silu;
                V(gate + t) = da * u * (s + silu * (SET(1.0f) - s));
            }
        }
        product(d, f, rows, above, 1, d, act, ld, d_down, f, 1);
        product(2 * f, d, rows, hidden, 1, ld, normed, d, d_gate_up, d, 1);
        product_packed(rows, d, 2 * f, hidden, ld, 1, gate_up, slope, d, 0);
        for (long r = 0; r < rows; r++)
            norm_back(d, x->x + (at + r) * d, x->norm, scale[r], slope + r * d, above + r * d, d_x + (at + r) * d,
                      d_norm);
    }
}
