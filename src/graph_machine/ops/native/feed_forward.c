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

/* Work memory of a thread: rows of a tile, and packed matrices. Each thread packs its own: lines that one core has
   written come slowly to another. */
typedef struct {
    float *hidden, *act, *normed, *slope, *base, *scale; /* TILE of hidden_ld, hidden_ld, d, d, d, 1 */
    float *in, *down, *out;                              /* as the forward pass takes them */
    float *in_back, *down_back, *out_back;
} FfnWork;

static FfnWork cut_ffn(const Ffn *x, float *at, long *size) {
    long d = x->d, f = x->f, a = x->a, wide = TILE * hidden_ld(x);
    float *p = at;
    FfnWork w = {
        .hidden = take(&p, wide),
        .act = take(&p, wide),
        .normed = take(&p, TILE * d),
        .slope = take(&p, TILE * d),
        .base = take(&p, TILE * d),
        .scale = take(&p, TILE),
        .in = take(&p, packed_size(d, 2 * f)),
        .down = take(&p, packed_size(f, d)),
        .out = take(&p, packed_size(a, d)),
        .in_back = take(&p, packed_size(2 * f, d)),
        .down_back = take(&p, packed_size(d, f)),
        .out_back = take(&p, packed_size(d, a)),
    };
    *size = apart(p - at);
    return w;
}

/* Numbers of `work` per thread. */
long gm_ffn_work(const Ffn *x) {
    long size;
    cut_ffn(x, 0, &size);
    return size;
}

/* This thread's part of `work`, with matrices that both passes take. */
static FfnWork begin_ffn(const Ffn *x, float *work) {
    long size = gm_ffn_work(x);
    FfnWork w = cut_ffn(x, own_slice(work, size), &size);
    pack(x->d, 2 * x->f, x->gate_up, 1, x->d, w.in);
    if (x->added) pack(x->a, x->d, x->out, 1, x->a, w.out);
    return w;
}

/* Of a tile: y, its normed rows, and gate and up of them; `scale` keeps 1 / rms. */
static void hidden_tile(const Ffn *x, const FfnWork *w, long at, long rows, float *base) {
    memcpy(base, x->x + at * x->d, rows * x->d * sizeof(float));
    if (x->added) product_packed(rows, x->d, x->a, x->added + at * x->a, x->a, 1, w->out, base, x->d, 1);
    for (long r = 0; r < rows; r++) {
        w->scale[r] = inverse_rms(x->d, base + r * x->d, x->eps);
        norm_row(x->d, base + r * x->d, x->norm, w->scale[r], w->normed + r * x->d);
    }
    product_packed(rows, 2 * x->f, x->d, w->normed, x->d, 1, w->in, w->hidden, hidden_ld(x), 0);
}

void gm_ffn(const Ffn *x, float *outs, float *work, int threads) {
    long d = x->d, f = x->f, ld = hidden_ld(x);
#pragma omp parallel num_threads(threads)
    {
        FfnWork w = begin_ffn(x, work);
        pack(f, d, x->down, 1, f, w.down);
#pragma omp for schedule(static)
        for (long at = 0; at < x->rows; at += TILE) {
            long rows = smaller(TILE, x->rows - at);
            hidden_tile(x, &w, at, rows, outs + at * d);
            for (long r = 0; r < rows; r++) {
                float *row = w.hidden + r * ld;
                for (long t = 0; t < f; t += LANES) {
                    vw gate = load(row + t, f - t);
                    store(row + t, f - t, gate * sigmoid(gate) * load(row + f + t, f - t));
                }
            }
            product_packed(rows, d, f, w.hidden, ld, 1, w.down, outs + at * d, d, 1);
        }
    }
}

/* From the gradient of what `down` takes, in `act`, to those of gate and up in their places; `act` is what it took. */
static void gate_back(long f, float *gate, float *up, float *act) {
    for (long t = 0; t < f; t += LANES) {
        long left = f - t;
        vw g = load(gate + t, left), u = load(up + t, left), da = load(act + t, left);
        vw s = sigmoid(g), silu = g * s;
        store(act + t, left, silu * u);
        store(up + t, left, da * silu);
        store(gate + t, left, da * u * (s + silu * (SET(1.0f) - s)));
    }
}

/* Sets of parameters' gradients have 2 f d + d f + d + d a numbers. */
void gm_ffn_backward(const Ffn *x, const float *d_outs, float *d_x, float *d_added, float *d_parameters, float *work,
                     int threads) {
    long d = x->d, f = x->f, a = x->a, ld = hidden_ld(x), count = 3 * f * d + d + d * a;
#pragma omp parallel num_threads(threads)
    {
        FfnWork w = begin_ffn(x, work);
        pack(d, f, x->down, f, 1, w.down_back);
        pack(2 * f, d, x->gate_up, d, 1, w.in_back);
        if (x->added) pack(d, a, x->out, a, 1, w.out_back);
        float *d_gate_up = own_set(count, d_parameters, threads);
        float *d_down = d_gate_up + 2 * f * d, *d_norm = d_down + d * f, *d_out = d_norm + d;
#pragma omp for schedule(static)
        for (long at = 0; at < x->rows; at += TILE) {
            long rows = smaller(TILE, x->rows - at);
            const float *above = d_outs + at * d;
            hidden_tile(x, &w, at, rows, w.base);
            product_packed(rows, f, d, above, d, 1, w.down_back, w.act, ld, 0);
            for (long r = 0; r < rows; r++) gate_back(f, w.hidden + r * ld, w.hidden + r * ld + f, w.act + r * ld);
            product(d, f, rows, above, 1, d, w.act, ld, d_down, f, 1);
            product(2 * f, d, rows, w.hidden, 1, ld, w.normed, d, d_gate_up, d, 1);
            product_packed(rows, d, 2 * f, w.hidden, ld, 1, w.in_back, w.slope, d, 0);
            for (long r = 0; r < rows; r++)
                norm_back(d, w.base + r * d, x->norm, w.scale[r], w.slope + r * d, above + r * d, d_x + (at + r) * d, d_norm);
            if (!x->added) continue;
            product_packed(rows, a, d, d_x + at * d, d, 1, w.out_back, d_added + at * a, a, 0);
            product(d, a, rows, d_x + at * d, 1, d, x->added + at * a, a, d_out, a, 1);
        }
    }
    join_sets(count, d_parameters, threads);
}
