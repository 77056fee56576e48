/* What is done to every row alike: RMS norm, and the feed-forward network with its norm and residual. */

#include "common.h"

void gm_norm(long rows, long d, const float *x, const float *weight, float eps, float *outs, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long r = 0; r < rows; r++) norm_row(d, x + r * d, weight, inverse_rms(d, x + r * d, eps), outs + r * d);
}

/* d_weights are sets of d. */
void gm_norm_backward(long rows, long d, const float *x, const float *weight, float eps, const float *d_outs,
                      float *d_x, float *d_weights, int threads) {
#pragma omp parallel num_threads(threads)
    {
        float *own = own_set(d, d_weights, threads);
#pragma omp for schedule(static)
        for (long r = 0; r < rows; r++)
            norm_back(d, x + r * d, weight, inverse_rms(d, x + r * d, eps), d_outs + r * d, 0, d_x + r * d, own);
    }
    join_sets(d, d_weights, threads);
}

/* y + down(silu(gate yn) * up yn), yn = norm(y), y = x + out(added) or x: d wide, f hidden, `added` is a wide, all
   multiples of 8. */
typedef struct {
    long rows, d, f, a;
    const float *x, *norm, *gate_up, *down; /* rows d, d, 2f d, d f */
    const float *added, *out;               /* rows a, d a; or null */
    float eps;
} Ffn;

/* Hidden rows are a little apart of a power of two. */
INLINE long hidden_ld(const Ffn *x) { return 2 * x->f + 16; }

/* Numbers of `work`: packed matrices for all threads, then a slice for each. */
long gm_ffn_shared(const Ffn *x) {
    long in = packed_size(x->d, 2 * x->f), out = packed_size(x->f, x->d);
    return in + out + packed_size(2 * x->f, x->d) + packed_size(x->d, x->f) + packed_size(x->a, x->d) +
           packed_size(x->d, x->a);
}

long gm_ffn_work(const Ffn *x) { return apart(TILE * (2 * hidden_ld(x) + 3 * x->d) + TILE); }

/* y of a tile; `out` is packed. */
static void base_tile(const Ffn *x, const float *out, long at, long rows, float *base) {
    memcpy(base, x->x + at * x->d, rows * x->d * sizeof(float));
    if (x->added) product_packed(rows, x->d, x->a, x->added + at * x->a, x->a, 1, out, base, x->d, 1);
}

/* Normed rows of a tile, and gate and up of them; `scale` keeps 1 / rms. */
static void hidden_tile(const Ffn *x, const float *packed, const float *base, long rows, float *normed, float *scale,
                        float *hidden) {
    for (long r = 0; r < rows; r++) {
        scale[r] = inverse_rms(x->d, base + r * x->d, x->eps);
        norm_row(x->d, base + r * x->d, x->norm, scale[r], normed + r * x->d);
    }
    product_packed(rows, 2 * x->f, x->d, normed, x->d, 1, packed, hidden, hidden_ld(x), 0);
}

void gm_ffn(const Ffn *x, float *outs, float *work, int threads) {
    long d = x->d, f = x->f, ld = hidden_ld(x), size = gm_ffn_work(x);
    float *in = work, *down = in + packed_size(d, 2 * f), *out = down + packed_size(f, d);
    float *rest = work + gm_ffn_shared(x);
    pack(d, 2 * f, x->gate_up, 1, d, in);
    pack(f, d, x->down, 1, f, down);
    if (x->added) pack(x->a, d, x->out, 1, x->a, out);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long at = 0; at < x->rows; at += TILE) {
        long rows = smaller(TILE, x->rows - at);
        float *hidden = own_slice(rest, size), *normed = hidden + TILE * ld, *scale = normed + TILE * d;
        base_tile(x, out, at, rows, outs + at * d);
        hidden_tile(x, in, outs + at * d, rows, normed, scale, hidden);
        for (long r = 0; r < rows; r++) {
            float *row = hidden + r * ld;
            for (long t = 0; t < f; t += LANES) {
                vw gate = load(row + t, f - t);
                store(row + t, f - t, gate * sigmoid(gate) * load(row + f + t, f - t));
            }
        }
        product_packed(rows, d, f, hidden, ld, 1, down, outs + at * d, d, 1);
    }
}

/* Sets of parameters' gradients have 2 f d + d f + d + d a numbers. */
void gm_ffn_backward(const Ffn *x, const float *d_outs, float *d_x, float *d_added, float *d_parameters, float *work,
                     int threads) {
    long d = x->d, f = x->f, a = x->a, ld = hidden_ld(x), size = gm_ffn_work(x), count = 3 * f * d + d + d * a;
    float *in = work, *down = in + packed_size(d, 2 * f), *gate_up = down + packed_size(d, f);
    float *out = gate_up + packed_size(2 * f, d), *out_back = out + packed_size(a, d);
    float *rest = work + gm_ffn_shared(x);
    pack(d, 2 * f, x->gate_up, 1, d, in);
    pack(d, f, x->down, f, 1, down);
    pack(2 * f, d, x->gate_up, d, 1, gate_up);
    if (x->added) pack(a, d, x->out, 1, a, out), pack(d, a, x->out, a, 1, out_back);
#pragma omp parallel num_threads(threads)
    {
        float *d_gate_up = own_set(count, d_parameters, threads);
        float *d_down = d_gate_up + 2 * f * d, *d_norm = d_down + d * f, *d_out = d_norm + d;
#pragma omp for schedule(static)
        for (long at = 0; at < x->rows; at += TILE) {
            long rows = smaller(TILE, x->rows - at);
            float *hidden = own_slice(rest, size), *act = hidden + TILE * ld, *normed = act + TILE * ld;
            float *slope = normed + TILE * d, *base = slope + TILE * d, *scale = base + TILE * d;
            const float *above = d_outs + at * d;
            base_tile(x, out, at, rows, base);
            hidden_tile(x, in, base, rows, normed, scale, hidden);
            product_packed(rows, f, d, above, d, 1, down, act, ld, 0);
            for (long r = 0; r < rows; r++) {
                float *gate = hidden + r * ld, *up = gate + f, *row = act + r * ld;
                for (long t = 0; t < f; t += LANES) {
                    long left = f - t;
                    vw g = load(gate + t, left), u = load(up + t, left), da = load(row + t, left);
                    vw s = sigmoid(g), silu = g * s;
                    store(row + t, left, silu * u);
                    store(up + t, left, da * silu);
                    store(gate + t, left, da * u * (s + silu * (SET(1.0f) - s)));
                }
            }
            product(d, f, rows, above, 1, d, act, ld, d_down, f, 1);
            product(2 * f, d, rows, hidden, 1, ld, normed, d, d_gate_up, d, 1);
            product_packed(rows, d, 2 * f, hidden, ld, 1, gate_up, slope, d, 0);
            for (long r = 0; r < rows; r++)
                norm_back(d, base + r * d, x->norm, scale[r], slope + r * d, above + r * d, d_x + (at + r) * d, d_norm);
            if (!x->added) continue;
            product_packed(rows, a, d, d_x + at * d, d, 1, out_back, d_added + at * a, a, 0);
            product(d, a, rows, d_x + at * d, 1, d, x->added + at * a, a, d_out, a, 1);
        }
    }
    join_sets(count, d_parameters, threads);
}
