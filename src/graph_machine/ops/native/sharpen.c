/* Sharpening, softmax(temp * log(max(x, eps))), forward and backward, a row at a time. */

#include "common.h"

INLINE v8 load_row(const float *p, long m, long t) { return t + 8 <= m ? C(p + t) : load_part(p + t, m - t); }

INLINE void store_row(float *p, long m, long t, v8 x) {
    if (t + 8 <= m) V(p + t) = x;
    else store_part(p + t, m - t, x);
}

/* Numbers of `work` per thread. */
long gm_sharpen_work(long m) { return 3 * filled(m) + 64; }

/* Graphs of n sources with k rows of m numbers each; `mask` is null or has a row per source, through strides. */
void gm_sharpen(long b, long n, long k, long m, const float *x, const float *temps, const unsigned char *mask,
                long mask_graph, long mask_source, float eps, float *outs, float *work, int threads) {
    long mp = filled(m), size = gm_sharpen_work(m);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long at = 0; at < b * n; at++) {
        float *f = own_slice(work, size), *fill = f + mp;
        int *keep = (int *)(fill + mp), real = 0;
        const unsigned char *seen = mask ? mask + at / n * mask_graph + at % n * mask_source : 0;
        for (long t = 0; t < mp; t++) {
            int may = t < m && (!seen || seen[t]);
            keep[t] = -may, fill[t] = may ? 0.0f : t < m ? MASKED : FILL, real |= may;
        }
        for (long row = at * k; row < (at + 1) * k; row++) {
            v8 top = SET(-INFINITY), sum = SET(0.0f), temp = SET(temps[row]);
            for (long t = 0; t < mp; t += 8) {
                v8 value = temp * logarithm(larger_of(SET(eps), load_row(x + row * m, m, t)));
                value = (v8)(((v8i)value & (v8i)C(keep + t)) | (v8i)C(fill + t));
                V(f + t) = value;
                top = larger_of(top, value);
            }
            v8 most = SET(largest(top));
            for (long t = 0; t < mp; t += 8) {
                v8 value = exponential(C(f + t) - most);
                V(f + t) = value;
                sum += value;
            }
            v8 scale = SET(real ? 1.0f / total(sum) : 0.0f);
            for (long t = 0; t < mp; t += 8) store_row(outs + row * m, m, t, C(f + t) * scale);
        }
    }
}

void gm_sharpen_backward(long rows, long m, const float *grads, const float *x, const float *temps,
                         const float *outs, float eps, float *d_x, float *d_temps, int threads) {
    long mp = filled(m);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < rows; row++) {
        const float *grad = grads + row * m, *in = x + row * m, *out = outs + row * m;
        v8 dot = SET(0.0f), slope = SET(0.0f), temp = SET(temps[row]), least = SET(eps);
        for (long t = 0; t < mp; t += 8) dot += load_row(grad, m, t) * load_row(out, m, t);
        v8 mean = SET(total(dot));
        for (long t = 0; t < mp; t += 8) {
            v8 value = load_row(in, m, t), floor_ = larger_of(least, value);
            v8 delta = load_row(out, m, t) * (load_row(grad, m, t) - mean);
            slope += delta * logarithm(floor_);
            delta = (v8)((v8i)(delta * temp / floor_) & (v8i)(value >= least));
            store_row(d_x + row * m, m, t, delta);
        }
        d_temps[row] = total(slope);
    }
}
