/* Nodes into heads: RMS norm, a linear map, and what becomes of its parts: some normed to unit RMS (QK-norm), some made
   temperatures, the others as they are; and back. */

#include "common.h"

#define MOST_PARTS 8

/* What the map makes of a row is its parts side by side, each of h heads; a temperature has width 1. */
typedef struct {
    long rows, d, h, width, count;
    long widths[MOST_PARTS], kinds[MOST_PARTS];
    const float *x, *norm, *weight; /* rows d, d or null, width d */
    float eps, shift;
} Project;

typedef struct {
    float *at[MOST_PARTS]; /* contiguous (rows, h, width); absent: null */
} Parts;

/* Rows of what is made are this far apart: a part is made with up to 7 columns more. */
INLINE long made_ld(const Project *x) { return filled(x->width) + 8; }

/* Numbers of `work`: packed matrices for all threads, then a slice for each. */
long gm_project_shared(const Project *x) {
    return (x->width + PANEL * x->count) * x->d + packed_size(x->width, x->d);
}

long gm_project_work(const Project *x) { return apart(TILE * (made_ld(x) + 2 * filled(x->d)) + TILE); }

/* Every part packed on its own: the backward pass needs some of them. Returns where they end. */
static float *pack_parts(const Project *x, float *out, float **parts) {
    const float *weight = x->weight;
    for (long part = 0; part < x->count; part++) {
        long size = x->h * x->widths[part];
        parts[part] = out;
        pack(x->d, size, weight, 1, x->d, out);
        out += packed_size(x->d, size), weight += size * x->d;
    }
    return out;
}

/* Rows of a tile as the map takes them, filled up. */
static void normed_tile(const Project *x, long at, long rows, float *normed, float *scale) {
    long d = x->d, dp = filled(d);
    for (long r = 0; r < rows; r++) {
        const float *row = x->x + (at + r) * d;
        fill_row(normed + r * dp, row, d, dp);
        if (!x->norm) continue;
        scale[r] = inverse_rms(d, row, x->eps);
        norm_row(d, row, x->norm, scale[r], normed + r * dp);
    }
}

void gm_project(const Project *x, const Parts *outs, float *work, int threads) {
    long ld = made_ld(x), dp = filled(x->d), size = gm_project_work(x), h = x->h;
    float *parts[MOST_PARTS], *rest = work + gm_project_shared(x);
    pack_parts(x, work, parts);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long at = 0; at < x->rows; at += TILE) {
        long rows = smaller(TILE, x->rows - at);
        float *made = own_slice(rest, size), *normed = made + TILE * ld, *scale = normed + TILE * dp;
        normed_tile(x, at, rows, normed, scale);
        for (long part = 0; part < x->count; part++) {
            long d = x->widths[part], kind = x->kinds[part], wide = h * d;
            product_packed(rows, filled(wide), x->d, normed, dp, 1, parts[part], made, ld, 0);
            for (long r = 0; r < rows; r++) {
                float *from = made + r * ld, *to = outs->at[part] + (at + r) * wide;
                if (kind == AS_IS) copy_row(to, from, wide);
                else if (kind == UNIT_RMS)
                    for (long head = 0; head < h; head++, from += d, to += d) {
                        vw inv = SET(inverse_rms(d, from, x->eps));
                        for (long t = 0; t < d; t += LANES) store(to + t, d - t, load(from + t, d - t) * inv);
                    }
                else
                    for (long t = 0; t < wide; t += LANES)
                        store(to + t, wide - t, temperature_of(kind, load(from + t, wide - t), x->shift));
            }
        }
    }
}

/* From the gradient `above` of a part's row to that of what the map made of it, `z`, in `to`. */
INLINE void part_back(const Project *x, long part, const float *z, const float *above, float *to) {
    long d = x->widths[part], kind = x->kinds[part], wide = x->h * d;
    if (!above) memset(to, 0, wide * sizeof(float));
    else if (kind == AS_IS) copy_row(to, above, wide);
    else if (kind == UNIT_RMS)
        for (long head = 0; head < x->h; head++, z += d, above += d, to += d) {
            float scale = inverse_rms(d, z, x->eps);
            vw dot = SET(0.0f);
            for (long t = 0; t < d; t += LANES) dot += load(z + t, d - t) * load(above + t, d - t);
            vw share = SET(scale * scale * scale * total(dot) / d), inv = SET(scale);
            for (long t = 0; t < d; t += LANES)
                store(to + t, d - t, inv * load(above + t, d - t) - share * load(z + t, d - t));
        }
    else
        for (long t = 0; t < wide; t += LANES) {
            vw slope = temperature_slope(kind, load(z + t, wide - t), x->shift);
            store(to + t, wide - t, slope * load(above + t, wide - t));
        }
}

/* Sets of parameters' gradients are (width + 1, d filled up); the last row is that of the norm. */
void gm_project_backward(const Project *x, const Parts *above, float *d_x, float *d_parameters, float *work,
                         int threads) {
    long ld = made_ld(x), width = x->width, d = x->d, dp = filled(d), size = gm_project_work(x), count = (width + 1) * dp;
    float *parts[MOST_PARTS], *whole = pack_parts(x, work, parts);
    pack(width, d, x->weight, d, 1, whole);
#pragma omp parallel num_threads(threads)
    {
        float *d_weight = own_set(count, d_parameters, threads);
#pragma omp for schedule(static)
        for (long at = 0; at < x->rows; at += TILE) {
            long rows = smaller(TILE, x->rows - at);
            float *made = own_slice(work + gm_project_shared(x), size), *normed = made + TILE * ld;
            float *slope = normed + TILE * dp, *scale = slope + TILE * dp, *to = made;
            normed_tile(x, at, rows, normed, scale);
            for (long part = 0; part < x->count; part++) {
                long wide = x->h * x->widths[part];
                const float *given = above->at[part];
                if (given && x->kinds[part] != AS_IS)
                    product_packed(rows, filled(wide), d, normed, dp, 1, parts[part], to, ld, 0);
                for (long r = 0; r < rows; r++)
                    part_back(x, part, to + r * ld, given ? given + (at + r) * wide : 0, to + r * ld);
                to += wide;
            }
            product(width, dp, rows, made, 1, ld, normed, dp, d_weight, dp, 1);
            product_packed(rows, dp, width, made, ld, 1, whole, slope, dp, 0);
            for (long r = 0; r < rows; r++) {
                const float *row = slope + r * dp;
                if (x->norm) norm_back(d, x->x + (at + r) * d, x->norm, scale[r], row, 0, d_x + (at + r) * d, d_weight + width * dp);
                else copy_row(d_x + (at + r) * d, row, d);
            }
        }
    }
    join_sets(count, d_parameters, threads);
}
