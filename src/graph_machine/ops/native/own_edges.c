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
    float *parameters; /* sets of (2, h d e) */
} SlotGrads;

/* Nodes are worked on LANES at a time, one in each lane of a vector, so that no sum runs across a vector: what has
   width w in a row is (w, LANES) here, turned on the way in and out. Behind the last node there are copies of it. */
typedef struct {
    long rows, graph[LANES], node[LANES];
} Group;

static Group group_at(const Slots *x, long at) {
    Group g = {.rows = smaller(LANES, x->b * x->n - at)};
    for (long r = 0; r < LANES; r++) {
        long row = at + smaller(r, g.rows - 1);
        g.graph[r] = row / x->n, g.node[r] = row % x->n;
    }
    return g;
}

/* A contiguous tensor (b, n, h, width). */
INLINE Heads whole(const Slots *x, const float *at, long h, long width) {
    return (Heads){(float *)at, x->n * h * width, width, h * width};
}

INLINE v8 part_of(const float *row, long left) {
    if (left >= 8) return C8(row);
    float part[8] = {0};
    memcpy(part, row, left * sizeof(float));
    return C8(part);
}

INLINE void fetch(Heads x, const Group *g, long head, long width, float *out) {
    const float *rows[LANES];
    EACH(r, LANES) rows[r] = ROW(x, g->graph[r], head, g->node[r]);
    for (long low = 0; low < LANES; low += 8)
        for (long t = 0; t < width; t += 8) {
            v8 part[8];
            EACH(r, 8) part[r] = part_of(rows[low + r] + t, width - t);
            turn8(part);
            EACH(u, 8) if (t + u < width) V8(out + (t + u) * LANES + low) = part[u];
        }
}

INLINE void place(const float *in, long width, const Group *g, Heads x, long head) {
    for (long low = 0; low < g->rows; low += 8)
        for (long t = 0; t < width; t += 8) {
            v8 part[8];
            EACH(u, 8) part[u] = t + u < width ? C8(in + (t + u) * LANES + low) : SET8(0.0f);
            turn8(part);
            for (long r = low; r < smaller(low + 8, g->rows); r++)
                copy_row(ROW(x, g->graph[r], head, g->node[r]) + t, (float *)&part[r - low], smaller(8, width - t));
        }
}

INLINE vw fetch_temps(Heads x, const Group *g, long head) {
    vw temps = SET(1.0f);
    for (long r = 0; x.at && r < LANES; r++) temps[r] = *ROW(x, g->graph[r], head, g->node[r]);
    return temps;
}

INLINE void place_temps(vw temps, const Group *g, Heads x, long head) {
    for (long r = 0; x.at && r < g->rows; r++) *ROW(x, g->graph[r], head, g->node[r]) = temps[r];
}

/* What the next group will read or write of these, and of features and queries. (A call that only does this would be
   removed as one without effect.) */
INLINE void expect_next(const Slots *x, const SlotOuts *parts, long at) {
    const float *each[] = {x->features,        parts->queries,     parts->weights,  parts->mixed,
                           parts->e2_queries, parts->own_weights, parts->own_mixed};
    long d = x->h * x->d, k = x->h * x->k, e = x->h * x->e, widths[] = {x->k * x->e, d, k, e, e, k, e};
    for (int p = 0; p < 7; p++)
        if (each[p]) expect(each[p] + (at + LANES) * widths[p], LANES * widths[p]);
    expect(x->queries.at + (at + LANES) * x->queries.node, LANES * d);
}

/* Given slots that no node of a group has are left out: the first `head` slots are worked on, and the last `tail`,
   which is the empty edge's, right behind them. */
typedef struct {
    long head, tail;
} Span;

static Span span_of(const Slots *x, const Group *g) {
    long used = 0;
    for (long r = 0; r < g->rows; r++) {
        const int *given = x->given + (g->graph[r] * x->n + g->node[r]) * x->g;
        for (long q = x->g; q > used; q--)
            if (given[q - 1] >= 0) used = q;
    }
    return (Span){x->first + used, x->k - x->first - x->g};
}

/* Rows of slots, each `width` numbers: (k width) there, (head + tail) width here. */
INLINE void fetch_slots(const Slots *x, const float *at, const Group *g, long heads, long head, long width, Span s,
                        float *out) {
    Heads rows = whole(x, at, heads, x->k * width);
    fetch(rows, g, head, s.head * width, out);
    rows.at += (x->k - s.tail) * width;
    if (s.tail) fetch(rows, g, head, s.tail * width, out + s.head * width * LANES);
}

INLINE void place_slots(const Slots *x, const float *in, const Group *g, float *at, long heads, long head, long width,
                        Span s) {
    Heads rows = whole(x, at, heads, x->k * width);
    place(in, s.head * width, g, rows, head);
    long gap = x->k - s.tail - s.head;
    for (long r = 0; gap && r < g->rows; r++)
        memset(ROW(rows, g->graph[r], head, g->node[r]) + s.head * width, 0, gap * width * sizeof(float));
    rows.at += (x->k - s.tail) * width;
    if (s.tail) place(in + s.head * width * LANES, s.tail * width, g, rows, head);
}

/* FILL where a slot holds no edge, else 0: (slots, LANES). */
static void fetch_absent(const Slots *x, const Group *g, Span s, float *out) {
    for (long slot = 0; slot < s.head + s.tail; slot++)
        for (long r = 0; r < LANES; r++) {
            long own = slot - x->first, row = g->graph[r] * x->n + g->node[r];
            int absent = own >= 0 && slot < s.head && x->given[row * x->g + own] < 0;
            out[slot * LANES + r] = absent ? FILL : 0.0f;
        }
}

/* out (w) *= by */
INLINE void times(long w, vw by, float *out) {
    for (long t = 0; t < w; t++) V(out + t * LANES) *= by;
}

INLINE vw inner(long w, const float *a, const float *b) {
    vw sum = SET(0.0f);
    for (long t = 0; t < w; t++) sum += C(a + t * LANES) * C(b + t * LANES);
    return sum;
}

/* out (k) = features (k, e) x (e) */
INLINE void slot_dots(long k, long e, const float *features, const float *x, float *out) {
    long slot = 0;
    for (; slot + 4 <= k; slot += 4) {
        vw sum[4] = {0};
        for (long t = 0; t < e; t++) EACH(u, 4) sum[u] += C(features + ((slot + u) * e + t) * LANES) * C(x + t * LANES);
        EACH(u, 4) V(out + (slot + u) * LANES) = sum[u];
    }
    for (; slot < k; slot++) V(out + slot * LANES) = inner(e, features + slot * e * LANES, x);
}

/* out (e) = x (k) features (k, e) */
INLINE void slot_mix(long k, long e, const float *features, const float *x, float *out) {
    for (long t = 0; t < e; t += 8) {
        vw sum[8] = {0};
        for (long slot = 0; slot < k; slot++)
            EACH(u, 8) sum[u] += C(features + (slot * e + t + u) * LANES) * C(x + slot * LANES);
        EACH(u, 8) V(out + (t + u) * LANES) = sum[u];
    }
}

/* weights (k) = softmax(query . features), mixed (e) = weights features; 0 if no slot holds an edge. `absent` may be
   null. */
INLINE void weigh_slots(long k, long e, const float *features, const float *absent, const float *query, float *weights,
                        float *mixed) {
    vw top = SET(-INFINITY), sum = SET(0.0f);
    slot_dots(k, e, features, query, weights);
    for (long t = 0; t < k * LANES; t += LANES) {
        if (absent) V(weights + t) += C(absent + t);
        top = larger_of(top, C(weights + t));
    }
    for (long t = 0; t < k * LANES; t += LANES) {
        vw value = exponential(C(weights + t) - top);
        if (absent) value = where(C(absent + t) == SET(FILL), SET(0.0f), value);
        V(weights + t) = value;
        sum += value;
    }
    times(k, where(sum == SET(0.0f), SET(0.0f), SET(1.0f) / sum), weights);
    slot_mix(k, e, features, weights, mixed);
}

/* absorbed (e) = query (d) M (d, e) */
INLINE void absorb(long d, long e, const float *m, const float *query, float *absorbed) {
    for (long t = 0; t < e; t += 8) {
        vw sum[8] = {0};
        for (long p = 0; p < d; p++) EACH(u, 8) sum[u] += m[p * e + t + u] * C(query + p * LANES);
        EACH(u, 8) V(absorbed + (t + u) * LANES) = sum[u];
    }
}

/* Slots, and widths of queries and features: the paper's are known here, so that loops over them are unrolled. */
#define PAPER 8
INLINE int of_paper(const Slots *x) { return !x->g && x->k == PAPER && x->d == PAPER && x->e == PAPER; }

INLINE void slots_group(const Slots *x, const SlotOuts *outs, const Group *group, long at, Span s, long d,
                        long e) {
    long h = x->h, k = s.head + s.tail;
    Group g = *group;
    float features[k * e * LANES], query[d * LANES], absorbed[e * LANES], weights[k * LANES], mixed[e * LANES];
    float absence[k * LANES], *absent = x->g ? absence : 0;
    expect_next(x, outs, at);
    fetch_slots(x, x->features, &g, 1, 0, e, s, features);
    if (absent) fetch_absent(x, &g, s, absent);
    for (long head = 0; head < h; head++) {
        fetch(x->queries, &g, head, d, query);
        times(d, SET(x->scale), query);
        absorb(d, e, x->e1_weights + head * d * e, query, absorbed);
        weigh_slots(k, e, features, absent, absorbed, weights, mixed);
        place_slots(x, weights, &g, outs->weights, h, head, 1, s);
        if (outs->mixed) place(mixed, e, &g, whole(x, outs->mixed, h, e), head);
        if (x->e2_weights) {
            absorb(d, e, x->e2_weights + head * d * e, query, absorbed);
            if (x->own) {
                weigh_slots(k, e, features, absent, absorbed, weights, mixed);
                place_slots(x, weights, &g, outs->own_weights, h, head, 1, s);
                place(mixed, e, &g, whole(x, outs->own_mixed, h, e), head);
            }
            times(e, fetch_temps(x->e2_temps, &g, head), absorbed);
            place(absorbed, e, &g, whole(x, outs->e2_queries, h, e), head);
        }
        if (!outs->queries) continue;
        times(d, fetch_temps(x->node_temps, &g, head), query);
        place(query, d, &g, whole(x, outs->queries, h, d), head);
    }
}

void gm_slots(const Slots *x, const SlotOuts *outs, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long at = 0; at < x->b * x->n; at += LANES) {
        Group g = group_at(x, at);
        if (of_paper(x)) slots_group(x, outs, &g, at, (Span){PAPER, 0}, PAPER, PAPER);
        else slots_group(x, outs, &g, at, span_of(x, &g), x->d, x->e);
    }
}

/* Adds to the gradients of the absorbed query (e) and of features (k, e). `weights` and the gradients of these and of
   what they mixed are one head's rows; gradients may be null. */
INLINE void weigh_back(const Slots *x, Span s, long e, const Group *g, long head, const float *features,
                       const float *query, const float *weights, const float *d_weights, const float *d_mixed,
                       float *slope, float *d_features) {
    long h = x->h, k = s.head + s.tail;
    float p[k * LANES], delta[k * LANES], above[(k > e ? k : e) * LANES], mixed[e * LANES];
    fetch_slots(x, weights, g, h, head, 1, s, p);
    memset(delta, 0, sizeof delta), memset(mixed, 0, sizeof mixed);
    if (d_mixed) {
        fetch(whole(x, d_mixed, h, e), g, head, e, mixed);
        slot_dots(k, e, features, mixed, delta);
    }
    if (d_weights) {
        fetch_slots(x, d_weights, g, h, head, 1, s, above);
        for (long t = 0; t < k * LANES; t += LANES) V(delta + t) += C(above + t);
    }
    vw mean = inner(k, delta, p);
    for (long t = 0; t < k * LANES; t += LANES) V(delta + t) = C(p + t) * (C(delta + t) - mean);
    slot_mix(k, e, features, delta, above);
    for (long t = 0; t < e * LANES; t += LANES) V(slope + t) += C(above + t);
    for (long slot = 0; slot < k; slot++) {
        vw first = C(delta + slot * LANES), second = C(p + slot * LANES);
        float *to = d_features + slot * e * LANES;
        for (long t = 0; t < e * LANES; t += LANES) V(to + t) += first * C(query + t) + second * C(mixed + t);
    }
}

/* d_query (d) (+)= M (d, e) slope, d_weights (d, e) += query slope, summed over nodes. */
INLINE void absorb_back(long d, long e, const Group *g, const float *query, const float *m, const float *slope,
                        float *d_query, float *d_weights, int add) {
    float rows[LANES * e];
    for (long t = 0; t < d; t += 8) {
        vw sum[8] = {0};
        if (add) EACH(u, 8) sum[u] = C(d_query + (t + u) * LANES);
        for (long p = 0; p < e; p++) EACH(u, 8) sum[u] += m[(t + u) * e + p] * C(slope + p * LANES);
        EACH(u, 8) V(d_query + (t + u) * LANES) = sum[u];
    }
    transpose(e, LANES, slope, LANES, rows, e);
    product(d, e, g->rows, query, LANES, 1, rows, e, d_weights, e, 1);
}

/* `above` are gradients of `outs`; those of weights may be null. */
INLINE void group_back(const Slots *x, const SlotOuts *outs, const SlotOuts *above, const SlotGrads *grads,
                       const Group *group, long at, Span s, long d, long e) {
    long h = x->h, k = s.head + s.tail;
    Group g = *group;
    float features[k * e * LANES], d_features[k * e * LANES], query[d * LANES], d_query[d * LANES];
    float given[(d > e ? d : e) * LANES], absorbed[e * LANES], slope[e * LANES];
    float *e1_grads = own_slice(grads->parameters, apart(2 * h * d * e)), *e2_grads = e1_grads + h * d * e;
    expect_next(x, above, at);
    expect_next(x, &(SlotOuts){.weights = outs->weights, .own_weights = outs->own_weights}, at);
    expect(grads->features + (at + LANES) * x->k * e, LANES * x->k * e);
    fetch_slots(x, x->features, &g, 1, 0, e, s, features);
    memset(d_features, 0, sizeof d_features);
    for (long head = 0; head < h; head++) {
        const float *m = x->e1_weights + head * d * e;
        fetch(x->queries, &g, head, d, query);
        times(d, SET(x->scale), query);
        absorb(d, e, m, query, absorbed);
        memset(slope, 0, sizeof slope);
        weigh_back(x, s, e, &g, head, features, absorbed, outs->weights, above->weights, above->mixed, slope, d_features);
        absorb_back(d, e, &g, query, m, slope, d_query, e1_grads + head * d * e, 0);
        if (x->e2_weights) {
            m = x->e2_weights + head * d * e;
            absorb(d, e, m, query, absorbed);
            fetch(whole(x, above->e2_queries, h, e), &g, head, e, slope);
            place_temps(inner(e, absorbed, slope), &g, grads->e2_temps, head);
            times(e, fetch_temps(x->e2_temps, &g, head), slope);
            if (x->own)
                weigh_back(x, s, e, &g, head, features, absorbed, outs->own_weights, above->own_weights, above->own_mixed,
                           slope, d_features);
            absorb_back(d, e, &g, query, m, slope, d_query, e2_grads + head * d * e, 1);
        }
        if (outs->queries) {
            vw temp = fetch_temps(x->node_temps, &g, head);
            fetch(whole(x, above->queries, h, d), &g, head, d, given);
            place_temps(inner(d, query, given), &g, grads->node_temps, head);
            for (long t = 0; t < d * LANES; t += LANES) V(d_query + t) += temp * C(given + t);
        }
        times(d, SET(x->scale), d_query);
        place(d_query, d, &g, grads->queries, head);
    }
    place_slots(x, d_features, &g, grads->features, 1, 0, e, s);
}

void gm_slots_backward(const Slots *x, const SlotOuts *outs, const SlotOuts *above, const SlotGrads *grads, int threads) {
    long count = 2 * x->h * x->d * x->e;
#pragma omp parallel num_threads(threads)
    {
        own_set(count, grads->parameters, threads);
#pragma omp for schedule(static)
        for (long at = 0; at < x->b * x->n; at += LANES) {
            Group g = group_at(x, at);
            if (of_paper(x)) group_back(x, outs, above, grads, &g, at, (Span){PAPER, 0}, PAPER, PAPER);
            else group_back(x, outs, above, grads, &g, at, span_of(x, &g), x->d, x->e);
        }
    }
    join_sets(count, grads->parameters, threads);
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
    for (long at = 0; at < x->rows; at += TILE) {
        long rows = smaller(TILE, x->rows - at);
        memcpy(outs + at * h * v, x->base + at * h * v, rows * h * v * sizeof(float));
        for (long head = 0; head < h; head++) {
            long own = at * h + head;
            product(rows, v, e, x->e1 + own * e, h * e, 1, turned + head * v * e, v, outs + own * v, h * v, 1);
            if (x->e2)
                product(rows, v, e, x->e2 + own * e, h * e, 1, turned + (h + head) * v * e, v, outs + own * v, h * v, 1);
        }
    }
}

/* From `above` (rows, h, v) to one mixed part and its weights. */
static void collect_back(const Collect *x, long own, long rows, const float *above, const float *mixed,
                         const float *weights, float *d_mixed, float *d_weights) {
    long h = x->h, v = x->v, e = x->e;
    product(rows, e, v, above + own * v, h * v, 1, weights, e, d_mixed + own * e, h * e, 0);
    product(v, e, rows, above + own * v, 1, h * v, mixed + own * e, h * e, d_weights, e, 1);
}

/* Sets of parameters' gradients are (2, h v e); that of `base` is `above` itself. */
void gm_collect_backward(const Collect *x, const float *above, float *d_e1, float *d_e2, float *d_weights, int threads) {
    long h = x->h, size = x->v * x->e, count = 2 * h * size;
#pragma omp parallel num_threads(threads)
    {
        float *found = own_set(count, d_weights, threads);
#pragma omp for schedule(static)
        for (long at = 0; at < x->rows; at += TILE)
            for (long head = 0; head < h; head++) {
                long rows = smaller(TILE, x->rows - at), own = at * h + head, one = head * size, two = one + h * size;
                collect_back(x, own, rows, above, x->e1, x->e1_weights + one, d_e1, found + one);
                if (x->e2) collect_back(x, own, rows, above, x->e2, x->e2_weights + one, d_e2, found + two);
            }
    }
    join_sets(count, d_weights, threads);
}
