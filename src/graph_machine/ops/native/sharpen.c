/* Temperatures of edges from their features, beside the normed features; and sharpening with these temperatures,
   softmax(temp * log(max(x, eps))), a row at a time. Forward and backward. */

#include "common.h"

/* Numbers of `work` per thread. */
long gm_sharpen_work(long m) { return 3 * across(m) + 64; }

/* `f` has room for a row; bits of allowed targets and what others become come filled up. */
INLINE void sharpen_row(long m, const float *x, float temp, float eps, const float *keep, const float *fill, int real,
                        float *f, float *out) {
    long mp = across(m);
    vw top = SET(-INFINITY), sum = SET(0.0f);
    for (long t = 0; t < mp; t += LANES) {
        vw value = SET(temp) * logarithm(larger_of(SET(eps), load(x + t, m - t)));
        value = (vw)(((vwi)value & (vwi)C(keep + t)) | (vwi)C(fill + t));
        V(f + t) = value;
        top = larger_of(top, value);
    }
    vw most = SET(largest(top));
    for (long t = 0; t < mp; t += LANES) {
        vw value = exponential(C(f + t) - most);
        V(f + t) = value;
        sum += value;
    }
    vw scale = SET(real ? 1.0f / total(sum) : 0.0f);
    for (long t = 0; t < mp; t += LANES) store(out + t, m - t, C(f + t) * scale);
}

/* Which of m targets may be seen; `seen` may be null: all. Returns whether there are any. */
INLINE int sights(long m, const unsigned char *seen, float *keeps, float *fill) {
    int *keep = (int *)keeps, real = 0;
    for (long t = 0; t < across(m); t++) {
        int may = t < m && (!seen || seen[t]);
        keep[t] = -may, fill[t] = may ? 0.0f : t < m ? MASKED : FILL, real |= may;
    }
    return real;
}

/* Sources that a thread takes at a time. */
#define SOURCES 16

/* Graphs of n sources with k rows of m numbers each, `graph` numbers apart; `mask` is null or has a row per source,
   through strides. */
void gm_sharpen(long b, long n, long k, long m, long graph, const float *x, const float *temps, const unsigned char *mask,
                long mask_graph, long mask_source, float eps, float *outs, float *work, int threads) {
    long mp = across(m), size = gm_sharpen_work(m), sources = b * n;
    EACH_PART(part, (sources + SOURCES - 1) / SOURCES)
    for (long at = part * SOURCES; at < smaller(sources, (part + 1) * SOURCES); at++) {
        float *f = own_slice(work, size), *fill = f + mp, *keep = fill + mp;
        int real = sights(m, mask ? mask + at / n * mask_graph + at % n * mask_source : 0, keep, fill);
        const float *in = x + at / n * graph + at % n * k * m;
        for (long row = at * k; row < (at + 1) * k; row++, in += m)
            sharpen_row(m, in, temps[row], eps, keep, fill, real, f, outs + row * m);
    }
}

/* The same for packed graphs (factors.h); `m` is the size of the largest. */
void gm_sharpen_packed(long b, long k, long m, const long *starts, const long *squares, const float *x,
                       const float *temps, float eps, float *outs, float *work, int threads) {
    long size = gm_sharpen_work(m);
    EACH_PART(i, b) {
        long nodes = starts[i + 1] - starts[i];
        float *f = own_slice(work, size), *fill = f + across(m), *keep = fill + across(m);
        int real = sights(nodes, 0, keep, fill);
        for (long row = 0; row < nodes * k; row++) {
            long at = squares[i] * k + row * nodes;
            sharpen_row(nodes, x + at, temps[starts[i] * k + row], eps, keep, fill, real, f, outs + at);
        }
    }
}

/* d_x may be null. */
INLINE float sharpen_row_back(long m, const float *grad, const float *in, float temp, const float *out, float eps,
                              float *d_x) {
    long mp = across(m);
    vw dot = SET(0.0f), slope = SET(0.0f), least = SET(eps);
    for (long t = 0; t < mp; t += LANES) dot += load(grad + t, m - t) * load(out + t, m - t);
    vw mean = SET(total(dot));
    for (long t = 0; t < mp; t += LANES) {
        vw value = load(in + t, m - t), floor_ = larger_of(least, value);
        vw delta = load(out + t, m - t) * (load(grad + t, m - t) - mean);
        slope += delta * logarithm(floor_);
        if (!d_x) continue;
        delta = (vw)((vwi)(delta * SET(temp) / floor_) & (vwi)(value >= least));
        store(d_x + t, m - t, delta);
    }
    return total(slope);
}

/* Graphs of `rows` rows each; d_x may be null. */
void gm_sharpen_backward(long b, long rows, long m, long graph, const float *grads, const float *x, const float *temps,
                         const float *outs, float eps, float *d_x, float *d_temps, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < b * rows; row++)
        d_temps[row] = sharpen_row_back(m, grads + row * m, x + row / rows * graph + row % rows * m, temps[row],
                                        outs + row * m, eps, d_x ? d_x + row * m : 0);
}

void gm_sharpen_packed_backward(long b, long k, const long *starts, const long *squares, const float *grads,
                                const float *x, const float *temps, const float *outs, float eps, float *d_x,
                                float *d_temps, int threads) {
    EACH_PART(i, b) {
        long nodes = starts[i + 1] - starts[i];
        for (long row = 0; row < nodes * k; row++) {
            long at = squares[i] * k + row * nodes, own = starts[i] * k + row;
            d_temps[own] = sharpen_row_back(nodes, grads + at, x + at, temps[own], outs + at, eps, d_x ? d_x + at : 0);
        }
    }
}

/* Both norms share 1 / rms: temps = temperature(<norm(x), weight>), normed = edge_norm(x). e is a multiple of 8.
   Normed rows of a node's `slots` edges are `ld` numbers behind those of the node before. */
typedef struct {
    long rows, e, kind, slots, ld;
    const float *x, *norm, *weight, *edge_norm; /* rows e, e each */
    float eps, shift;
} Edges;

INLINE long normed_at(const Edges *x, long row) { return row / x->slots * x->ld + row % x->slots * x->e; }

/* 1 / rms of up to LANES rows, and their projections. */
INLINE vw project_rows(const Edges *x, long at, long rows, float *inv) {
    float dots[LANES] = {0};
    for (long r = 0; r < rows; r++) {
        const float *row = x->x + (at + r) * x->e;
        v8 sum = SET8(0.0f), dot = SET8(0.0f);
        for (long t = 0; t < x->e; t += 8) {
            v8 own = C8(row + t);
            sum += own * own;
            dot += own * (C8(x->norm + t) * C8(x->weight + t));
        }
        inv[r] = total8(sum), dots[r] = total8(dot);
    }
    for (long r = 0; r < rows; r++) inv[r] = 1.0f / sqrtf(inv[r] / x->e + x->eps);
    for (long r = 0; r < rows; r++) dots[r] *= inv[r];
    return C(dots);
}

void gm_edges(const Edges *x, float *temps, float *normed, int threads) {
    long e = x->e;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long at = 0; at < x->rows; at += LANES) {
        long rows = smaller(LANES, x->rows - at);
        float inv[LANES];
        store(temps + at, rows, temperature_of(x->kind, project_rows(x, at, rows, inv), x->shift));
        for (long r = 0; r < rows; r++)
            for (long t = 0, row = (at + r) * e, to = normed_at(x, at + r); t < e; t += 8)
                V8(normed + to + t) = C8(x->x + row + t) * inv[r] * C8(x->edge_norm + t);
    }
}

/* Sets of parameters' gradients are (2, e); the first is to be multiplied by `weight` for that of `norm`, and by `norm`
   for that of `weight`. */
void gm_edges_backward(const Edges *x, const float *d_temps, const float *d_normed, float *d_x, float *d_parameters,
                       int threads) {
    long e = x->e;
#pragma omp parallel num_threads(threads)
    {
        float *d_weight = own_set(2 * e, d_parameters, threads), *d_norm = d_weight + e;
#pragma omp for schedule(static)
        for (long at = 0; at < x->rows; at += LANES) {
            long rows = smaller(LANES, x->rows - at);
            float inv[LANES], slopes[LANES], dots[LANES];
            vw z = project_rows(x, at, rows, inv), slope = load(d_temps + at, rows) * temperature_slope(x->kind, z, x->shift);
            V(slopes) = slope, V(dots) = slope * z;
            for (long r = 0; r < rows; r++) {
                const float *own = x->x + (at + r) * e, *above = d_normed + normed_at(x, at + r);
                v8 dot = SET8(0.0f);
                for (long t = 0; t < e; t += 8) {
                    v8 hat = C8(own + t) * inv[r], given = C8(above + t);
                    V8(d_weight + t) += slopes[r] * hat;
                    V8(d_norm + t) += given * hat;
                    dot += given * C8(x->edge_norm + t) * hat;
                }
                float mean = (total8(dot) + dots[r]) / e * inv[r];
                for (long t = 0; t < e; t += 8) {
                    v8 both = C8(above + t) * C8(x->edge_norm + t) + slopes[r] * (C8(x->norm + t) * C8(x->weight + t));
                    V8(d_x + (at + r) * e + t) = inv[r] * (both - C8(own + t) * mean);
                }
            }
        }
    }
    join_sets(2 * e, d_parameters, threads);
}

/* Edges that stay, (nodes, s, e): normed, in blocks `ld` apart. Of the first g slots of a node, those whose target is
   below 0 hold no edge and become 0. */
typedef struct {
    long nodes, s, g, e, ld;
    const float *x, *weight;
    const int *given; /* nodes g */
    float eps;
} Staying;

INLINE int missing(const Staying *x, long node, long slot) { return slot < x->g && x->given[node * x->g + slot] < 0; }

void gm_staying(const Staying *x, float *outs, int threads) {
    long e = x->e;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long node = 0; node < x->nodes; node++)
        for (long slot = 0; slot < x->s; slot++) {
            const float *own = x->x + (node * x->s + slot) * e;
            float *to = outs + node * x->ld + slot * e;
            if (missing(x, node, slot)) memset(to, 0, e * sizeof(float));
            else norm_row(e, own, x->weight, inverse_rms(e, own, x->eps), to);
        }
}

/* d_weights are sets of e. */
void gm_staying_backward(const Staying *x, const float *d_outs, float *d_x, float *d_weights, int threads) {
    long e = x->e;
#pragma omp parallel num_threads(threads)
    {
        float *own = own_set(e, d_weights, threads);
#pragma omp for schedule(static)
        for (long node = 0; node < x->nodes; node++)
            for (long slot = 0; slot < x->s; slot++) {
                long at = (node * x->s + slot) * e;
                if (missing(x, node, slot)) memset(d_x + at, 0, e * sizeof(float));
                else
                    norm_back(e, x->x + at, x->weight, inverse_rms(e, x->x + at, x->eps),
                              d_outs + node * x->ld + slot * e, 0, d_x + at, own);
            }
    }
    join_sets(e, d_weights, threads);
}
