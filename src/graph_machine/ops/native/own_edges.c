/* What every source does with its own k edges before it looks elsewhere: queries projected down to edge features,
   softmax weights over slots, what these mix of the features; and after it: values of edges from mixed features. */

#include "common.h"

/* Widths d and e are multiples of 8. Absent: at = 0 or null. */
typedef struct {
    long b, n, h, k, d, e;
    Heads queries, node_temps, e2_temps;    /* rows of d, 1, 1 */
    const float *features;                  /* b n k e */
    const float *e1_weights, *e2_weights;   /* h d e */
    const int *given;                       /* b n g: the last slots (before the empty one) exist where it is >= 0 */
    long g, first;                          /* how many these are, and the first of them */
    float scale;
    int own;                                /* whether e2 has weights over slots, too */
} Slots;

/* All (b, n, h, .): queries with temperature and scale (d), weights over slots (k) and what they mix (e), queries
   of e2 with temperature (e), and for e2 the weights and mixes of its own. */
typedef struct {
    float *queries, *weights, *mixed, *e2_queries, *own_weights, *own_mixed;
} SlotOuts;

typedef struct {
    Heads queries, node_temps, e2_temps;
    float *features;
    float *parameters; /* (threads, 2, h d e), zeroed */
} SlotGrads;

#define MOST_SLOTS 64
#define MOST_WIDTH 64

typedef struct {
    float features[MOST_SLOTS * MOST_WIDTH]; /* kp e */
    float turned[MOST_SLOTS * MOST_WIDTH];   /* e kp */
    const int *given;                        /* g */
} Own;

static void gather_own(const Slots *x, long row, Own *own) {
    long k = x->k, kp = filled(k), e = x->e;
    memcpy(own->features, x->features + row * k * e, k * e * sizeof(float));
    memset(own->features + k * e, 0, (kp - k) * e * sizeof(float));
    transpose(kp, e, own->features, e, own->turned, kp);
    own->given = x->given + row * x->g;
}

/* out (w) = scale * x (v) M (v, w). */
INLINE void row_times(long v, long w, const float *x, const float *m, float scale, float *out) {
    for (long t = 0; t < w; t += 8) {
        v8 sum = SET8(0.0f);
        for (long p = 0; p < v; p++) sum += SET8(x[p]) * C8(m + p * w + t);
        V8(out + t) = SET8(scale) * sum;
    }
}

/* weights (k) = softmax(query . features), mixed (e) = weights features unless null. */
INLINE void weigh_slots(const Slots *x, const Own *own, const float *query, float *weights, float *mixed) {
    long k = x->k, kp = filled(k), e = x->e;
    float scores[MOST_SLOTS];
    row_times(e, kp, query, own->turned, 1.0f, scores);
    for (long t = k; t < kp; t++) scores[t] = FILL;
    for (long q = 0; q < x->g; q++)
        if (own->given[q] < 0) scores[x->first + q] = FILL;
    v8 top = C8(scores), sum = SET8(0.0f);
    for (long t = 8; t < kp; t += 8) top = larger_of8(top, C8(scores + t));
    v8 most = SET8(largest8(top));
    for (long t = 0; t < kp; t += 8) {
        v8 value = exponential8(C8(scores + t) - most);
        V8(scores + t) = value;
        sum += value;
    }
    v8 inv = SET8(1.0f / total8(sum));
    for (long t = 0; t < kp; t += 8) V8(scores + t) *= inv;
    copy_row(weights, scores, k);
    if (mixed) row_times(kp, e, scores, own->features, 1.0f, mixed);
}

void gm_slots(const Slots *x, const SlotOuts *outs, int threads) {
    long k = x->k, d = x->d, e = x->e, h = x->h;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < x->b * x->n; row++) {
        long i = row / x->n, j = row % x->n;
        Own own;
        gather_own(x, row, &own);
        for (long head = 0; head < h; head++) {
            long at = row * h + head;
            const float *query = ROW(x->queries, i, head, j);
            float absorbed[MOST_WIDTH], scale = x->scale;
            row_times(d, e, query, x->e1_weights + head * d * e, scale, absorbed);
            weigh_slots(x, &own, absorbed, outs->weights + at * k, outs->mixed ? outs->mixed + at * e : 0);
            if (outs->queries) {
                float temp = x->node_temps.at ? *ROW(x->node_temps, i, head, j) : 1.0f;
                for (long t = 0; t < d; t += 8) V8(outs->queries + at * d + t) = C8(query + t) * SET8(temp * scale);
            }
            if (!x->e2_weights) continue;
            float temp = x->e2_temps.at ? *ROW(x->e2_temps, i, head, j) : 1.0f;
            row_times(d, e, query, x->e2_weights + head * d * e, scale, absorbed);
            if (x->own) weigh_slots(x, &own, absorbed, outs->own_weights + at * k, outs->own_mixed + at * e);
            for (long t = 0; t < e; t += 8) V8(outs->e2_queries + at * e + t) = C8(absorbed + t) * SET8(temp);
        }
    }
}

/* Adds to the gradients of the absorbed query (e) and of features (kp, e); `given` of weights may be null, and
   `d_mixed` where nothing was mixed. */
INLINE void weigh_back(const Slots *x, const Own *own, const float *query, const float *weights, const float *given,
                       const float *d_mixed, float *d_query, float *d_features) {
    long k = x->k, kp = filled(k), e = x->e;
    float p[MOST_SLOTS], delta[MOST_SLOTS], slope[MOST_WIDTH], above[MOST_SLOTS];
    fill_row(p, weights, k, kp);
    if (given) fill_row(above, given, k, kp);
    if (d_mixed) row_times(e, kp, d_mixed, own->turned, 1.0f, delta);
    else memset(delta, 0, kp * sizeof(float));
    v8 dot = SET8(0.0f);
    for (long t = 0; t < kp; t += 8) {
        if (given) V8(delta + t) += C8(above + t);
        dot += C8(delta + t) * C8(p + t);
    }
    v8 mean = SET8(total8(dot));
    for (long t = 0; t < kp; t += 8) V8(delta + t) = C8(p + t) * (C8(delta + t) - mean);
    row_times(kp, e, delta, own->features, 1.0f, slope);
    for (long t = 0; t < e; t += 8) V8(d_query + t) += C8(slope + t);
    for (long slot = 0; slot < k; slot++)
        for (long t = 0; t < e; t += 8)
            if (d_mixed) V8(d_features + slot * e + t) += SET8(delta[slot]) * C8(query + t) + SET8(p[slot]) * C8(d_mixed + t);
            else V8(d_features + slot * e + t) += SET8(delta[slot]) * C8(query + t);
}

/* d_query (d) += scale * M (d, e) slope, d_weights (d, e) += scale * query slope. */
INLINE void absorb_back(long d, long e, const float *query, const float *m, const float *slope, float scale,
                        float *d_query, float *d_weights) {
    for (long p = 0; p < d; p++) {
        v8 sum = SET8(0.0f), own = SET8(scale * query[p]);
        for (long t = 0; t < e; t += 8) {
            sum += C8(m + p * e + t) * C8(slope + t);
            V8(d_weights + p * e + t) += own * C8(slope + t);
        }
        d_query[p] += scale * total8(sum);
    }
}

INLINE float inner(long width, const float *a, const float *b) {
    v8 sum = SET8(0.0f);
    for (long t = 0; t < width; t += 8) sum += C8(a + t) * C8(b + t);
    return total8(sum);
}

/* `above` are gradients of `outs`; those of weights may be null. */
void gm_slots_backward(const Slots *x, const SlotOuts *outs, const SlotOuts *above, const SlotGrads *grads, int threads) {
    long k = x->k, d = x->d, e = x->e, h = x->h, kp = filled(k);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < x->b * x->n; row++) {
        long i = row / x->n, j = row % x->n;
        Own own;
        float d_features[MOST_SLOTS * MOST_WIDTH];
        float *e1_grads = grads->parameters + omp_get_thread_num() * 2 * h * d * e, *e2_grads = e1_grads + h * d * e;
        gather_own(x, row, &own);
        memset(d_features, 0, kp * e * sizeof(float));
        for (long head = 0; head < h; head++) {
            long at = row * h + head;
            const float *query = ROW(x->queries, i, head, j), *m = x->e1_weights + head * d * e;
            float *d_query = ROW(grads->queries, i, head, j), absorbed[MOST_WIDTH], slope[MOST_WIDTH];
            float temp = x->node_temps.at ? *ROW(x->node_temps, i, head, j) : 1.0f, scale = x->scale;
            if (outs->queries) {
                const float *given = above->queries + at * d;
                for (long t = 0; t < d; t += 8) V8(d_query + t) = C8(given + t) * SET8(temp * scale);
                if (x->node_temps.at) *ROW(grads->node_temps, i, head, j) = scale * inner(d, query, given);
            } else
                memset(d_query, 0, d * sizeof(float));
            memset(slope, 0, e * sizeof(float));
            row_times(d, e, query, m, scale, absorbed);
            weigh_back(x, &own, absorbed, outs->weights + at * k, above->weights ? above->weights + at * k : 0,
                       above->mixed ? above->mixed + at * e : 0, slope, d_features);
            absorb_back(d, e, query, m, slope, scale, d_query, e1_grads + head * d * e);
            if (!x->e2_weights) continue;
            const float *given = above->e2_queries + at * e;
            m = x->e2_weights + head * d * e;
            temp = x->e2_temps.at ? *ROW(x->e2_temps, i, head, j) : 1.0f;
            row_times(d, e, query, m, scale, absorbed);
            if (x->e2_temps.at) *ROW(grads->e2_temps, i, head, j) = inner(e, absorbed, given);
            for (long t = 0; t < e; t += 8) V8(slope + t) = C8(given + t) * SET8(temp);
            if (x->own)
                weigh_back(x, &own, absorbed, outs->own_weights + at * k,
                           above->own_weights ? above->own_weights + at * k : 0, above->own_mixed + at * e, slope, d_features);
            absorb_back(d, e, query, m, slope, scale, d_query, e2_grads + head * d * e);
        }
        memcpy(grads->features + row * k * e, d_features, k * e * sizeof(float));
    }
}

/* Per head, outs (h, v) = base + e1 (h, e) W1 + e2 (h, e) W2 of every row; W (h, v, e). v and e multiples of 8. */
typedef struct {
    long rows, h, v, e;
    const float *base, *e1, *e2;   /* rows h v, rows h e; e2 may be null */
    const float *e1_weights, *e2_weights;
} Collect;

/* `turned` has room for both weights, (2, h, e, v). */
void gm_collect(const Collect *x, float *outs, float *turned, int threads) {
    long h = x->h, v = x->v, e = x->e;
    for (long head = 0; head < h; head++) {
        transpose(v, e, x->e1_weights + head * v * e, e, turned + head * v * e, v);
        if (x->e2) transpose(v, e, x->e2_weights + head * v * e, e, turned + (h + head) * v * e, v);
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < x->rows * h; row++) {
        long head = row % h;
        const float *first = turned + head * v * e, *second = turned + (h + head) * v * e;
        for (long t = 0; t < v; t += 8) {
            v8 sum = C8(x->base + row * v + t);
            for (long p = 0; p < e; p++) sum += SET8(x->e1[row * e + p]) * C8(first + p * v + t);
            if (x->e2)
                for (long p = 0; p < e; p++) sum += SET8(x->e2[row * e + p]) * C8(second + p * v + t);
            V8(outs + row * v + t) = sum;
        }
    }
}

/* Parameters' gradients (threads, 2, h v e) come zeroed; that of `base` is `above` itself. */
void gm_collect_backward(const Collect *x, const float *above, float *d_e1, float *d_e2, float *d_weights, int threads) {
    long h = x->h, v = x->v, e = x->e;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < x->rows * h; row++) {
        long head = row % h;
        float *first = d_weights + omp_get_thread_num() * 2 * h * v * e + head * v * e, *second = first + h * v * e;
        const float *given = above + row * v;
        row_times(v, e, given, x->e1_weights + head * v * e, 1.0f, d_e1 + row * e);
        for (long p = 0; p < v; p++)
            for (long t = 0; t < e; t += 8) V8(first + p * e + t) += SET8(given[p]) * C8(x->e1 + row * e + t);
        if (!x->e2) continue;
        row_times(v, e, given, x->e2_weights + head * v * e, 1.0f, d_e2 + row * e);
        for (long p = 0; p < v; p++)
            for (long t = 0; t < e; t += 8) V8(second + p * e + t) += SET8(given[p]) * C8(x->e2 + row * e + t);
    }
}
