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

/* Work memory of a thread: rows of a tile, and packed matrices, of every part and of the whole. */
typedef struct {
    float *made, *normed, *slope, *scale; /* TILE of made_ld, d filled up, the same, 1 */
    float *parts[MOST_PARTS], *whole;
} ProjectWork;

static ProjectWork cut_project(const Project *x, float *at, long *size) {
    long wide = TILE * filled(x->d);
    float *p = at;
    ProjectWork w = {
        .made = take(&p, TILE * made_ld(x)),
        .normed = take(&p, wide),
        .slope = take(&p, wide),
        .scale = take(&p, TILE),
        .whole = take(&p, packed_size(x->width, x->d)),
    };
    for (long part = 0; part < x->count; part++) w.parts[part] = take(&p, packed_size(x->d, x->h * x->widths[part]));
    *size = apart(p - at);
    return w;
}

/* Numbers of `work` per thread. */
long gm_project_work(const Project *x) {
    long size;
    cut_project(x, 0, &size);
    return size;
}

/* This thread's part of `work`; every part of the weight is packed on its own: the backward pass needs some of them. */
static ProjectWork begin_project(const Project *x, float *work) {
    const float *weight = x->weight;
    long size = gm_project_work(x);
    ProjectWork w = cut_project(x, own_slice(work, size), &size);
    for (long part = 0; part < x->count; part++) {
        pack(x->d, x->h * x->widths[part], weight, 1, x->d, w.parts[part]);
        weight += x->h * x->widths[part] * x->d;
    }
    return w;
}

/* Rows of a tile as the map takes them, filled up. */
static void normed_tile(const Project *x, long at, long rows, const ProjectWork *w) {
    long d = x->d, dp = filled(d);
    for (long r = 0; r < rows; r++) {
        const float *row = x->x + (at + r) * d;
        fill_row(w->normed + r * dp, row, d, dp);
        if (!x->norm) continue;
        w->scale[r] = inverse_rms(d, row, x->eps);
        norm_row(d, row, x->norm, w->scale[r], w->normed + r * dp);
    }
}

/* A part's row from what the map made of it, `z`. */
INLINE void finish_part(const Project *x, long part, const float *z, float *to) {
    long d = x->widths[part], kind = x->kinds[part], wide = x->h * d;
    if (kind == AS_IS) copy_row(to, z, wide);
    else if (kind == UNIT_RMS)
        for (long head = 0; head < x->h; head++, z += d, to += d) {
            vw inv = SET(inverse_rms(d, z, x->eps));
            for (long t = 0; t < d; t += LANES) store(to + t, d - t, load(z + t, d - t) * inv);
        }
    else
        for (long t = 0; t < wide; t += LANES)
            store(to + t, wide - t, temperature_of(kind, load(z + t, wide - t), x->shift));
}

void gm_project(const Project *x, const Parts *outs, float *work, int threads) {
    long ld = made_ld(x), dp = filled(x->d);
#pragma omp parallel num_threads(threads)
    {
        ProjectWork w = begin_project(x, work);
#pragma omp for schedule(static)
        for (long at = 0; at < x->rows; at += TILE) {
            long rows = smaller(TILE, x->rows - at);
            normed_tile(x, at, rows, &w);
            for (long part = 0; part < x->count; part++) {
                long wide = x->h * x->widths[part];
                product_packed(rows, filled(wide), x->d, w.normed, dp, 1, w.parts[part], w.made, ld, 0);
                for (long r = 0; r < rows; r++)
                    finish_part(x, part, w.made + r * ld, outs->at[part] + (at + r) * wide);
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
    long ld = made_ld(x), width = x->width, d = x->d, dp = filled(d), count = (width + 1) * dp;
#pragma omp parallel num_threads(threads)
    {
        ProjectWork w = begin_project(x, work);
        pack(width, d, x->weight, d, 1, w.whole);
        float *d_weight = own_set(count, d_parameters, threads);
#pragma omp for schedule(static)
        for (long at = 0; at < x->rows; at += TILE) {
            long rows = smaller(TILE, x->rows - at);
            float *to = w.made;
            normed_tile(x, at, rows, &w);
            for (long part = 0; part < x->count; part++) {
                long wide = x->h * x->widths[part];
                const float *given = above->at[part];
                if (given && x->kinds[part] != AS_IS)
                    product_packed(rows, filled(wide), d, w.normed, dp, 1, w.parts[part], to, ld, 0);
                for (long r = 0; r < rows; r++)
                    part_back(x, part, to + r * ld, given ? given + (at + r) * wide : 0, to + r * ld);
                to += wide;
            }
            product(width, dp, rows, w.made, 1, ld, w.normed, dp, d_weight, dp, 1);
            product_packed(rows, dp, width, w.made, ld, 1, w.whole, w.slope, dp, 0);
            for (long r = 0; r < rows; r++) {
                const float *row = w.slope + r * dp;
                if (x->norm) norm_back(d, x->x + (at + r) * d, x->norm, w.scale[r], row, 0, d_x + (at + r) * d, d_weight + width * dp);
                else copy_row(d_x + (at + r) * d, row, d);
            }
        }
    }
    join_sets(count, d_parameters, threads);
}
