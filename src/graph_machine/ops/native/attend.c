/* Attention over n2, forward and backward; pre-aggregated referral is the same with wider values, which every
   target mixes of its own edges, and with a second pair of queries and keys. */

#include "factors.h"

typedef struct {
    long v, e, l, a;
    Heads values, e2_queries, e2_keys, own_weights; /* rows of v, e, e, l + g + empty; absent: at = 0 */
    const float *e2_addresses;                      /* b m l a */
} Attend; /* with given edges or an empty edge, a = m = n: what a source may see it may see as n2, too */

typedef struct {
    Heads values, e2_queries, e2_keys, own_weights;
    float *e2_addresses;
} AttendGrads;

typedef struct {
    FactorWork factors;
    float *edge, *node, *more, *delta, *logs; /* h s mp, s mp each */
    float *values, *turned, *value_grads;    /* h mp wp, wp mp, h mp wp */
    float *outs, *out_turned;                /* s wp, wp */
    float *keys, *keys_turned, *key_grads;   /* of e2: h mp ep */
    float *queries;                          /* of e2: s ep */
    float *own_turned, *own_grads;           /* ap lp, h lp */
} AttendWork;

/* Values lie beside addresses: [v filled up | a filled up]. */
INLINE long width_of(const Attend *y) { return filled(y->v) + across(y->a); }

static AttendWork cut_work(const Factors *x, const Attend *y, float *at, long *size) {
    long s = tile_of(x), mp = across(x->m), wp = width_of(y), ep = filled(y->e), h = x->h;
    long ap = across(y->a), lp = filled(y->l);
    float *p = at;
    AttendWork w = {
        .factors = cut_factor_work(x, s, &p),
        .edge = take(&p, h * s * mp),
        .node = take(&p, s * mp),
        .more = take(&p, s * mp),
        .delta = take(&p, s * mp),
        .logs = take(&p, s * mp),
        .values = take(&p, h * mp * wp),
        .turned = take(&p, wp * mp),
        .value_grads = take(&p, h * mp * wp),
        .outs = take(&p, s * wp),
        .keys = take(&p, h * mp * ep),
        .keys_turned = take(&p, h * mp * ep),
        .key_grads = take(&p, h * mp * ep),
        .queries = take(&p, s * ep),
        .own_turned = take(&p, ap * lp),
        .own_grads = take(&p, filled(h) * lp),
    };
    *size = p - at + 64;
    return w;
}

static Attend attend_at(const Factors *x, const Attend *y, Place p) {
    Attend own = *y;
    if (!x->starts) return own;
    own.values = moved(y->values, p.row), own.e2_queries = moved(y->e2_queries, p.row);
    own.e2_keys = moved(y->e2_keys, p.row), own.own_weights = moved(y->own_weights, p.row);
    if (!y->e2_addresses) return own;
    own.a = p.nodes;
    own.e2_addresses += y->l * p.pair;
    return own;
}

static AttendGrads attend_grads_at(const Attend *y, const AttendGrads *grads, Place p) {
    AttendGrads own = *grads;
    own.values = moved(own.values, p.row), own.e2_queries = moved(own.e2_queries, p.row);
    own.e2_keys = moved(own.e2_keys, p.row), own.own_weights = moved(own.own_weights, p.row);
    if (own.e2_addresses) own.e2_addresses += y->l * p.pair;
    return own;
}

/* Numbers of `work` per thread: a graph of middle size may need most, as its tiles are larger. */
long gm_attend_work(const Factors *x, const Attend *y) {
    long most = 0, size;
    for (long i = 0; i < (x->starts ? x->b : 1); i++) {
        Place p = place_of(x, i);
        Factors factors = factors_at(x, p);
        Attend attend = attend_at(x, y, p);
        cut_work(&factors, &attend, 0, &size);
        most = size > most ? size : most;
    }
    return most;
}

INLINE const float *own_addresses(const Factors *x, const Attend *y, long i, long t) {
    const float *found = y->e2_addresses + (i * x->m + t) * y->l * y->a;
    expect(found + y->l * y->a, y->l * y->a);
    return found;
}

/* [values | mixed addresses] of a graph, (h, mp, wp). */
static void gather_values(const Factors *x, const Attend *y, AttendWork *w, long i) {
    long m = x->m, mp = across(m), wp = width_of(y), vp = filled(y->v), ap = across(y->a);
    for (long head = 0; head < x->h; head++) gather(y->values, i, head, 0, m, mp, y->v, wp, w->values + head * mp * wp);
    if (!y->e2_addresses) return;
    for (long t = 0; t < m; t++) {
        product_any(x->h, y->a, y->l, ROW(y->own_weights, i, 0, t), y->own_weights.head, 1, own_addresses(x, y, i, t),
                    y->a, w->values + t * wp + vp, mp * wp, 0);
        if (!x->g && !x->empty) continue;
        begin_tile(x, &w->factors, i, t, 1);
        begin_source(x, &w->factors, 0);
        for (long head = 0; head < x->h; head++) {
            const float *weights = ROW(y->own_weights, i, head, t) + y->l;
            float *row = w->values + (head * mp + t) * wp + vp;
            add_given(x->given + (i * m + t) * x->g, x->g, weights, x->given_scale, row);
            if (x->empty) add_empty(w->factors.keep, w->factors.real, ap, x->given_scale * weights[x->g], row);
        }
    }
}

/* Sums of all factors of one head and tile in place of its mixed addresses, and the largest of each row. */
static void sum_tile(const Factors *x, const Attend *y, AttendWork *w, long i, long head, long from, long s,
                     float *rows, float *stats, double *entropies) {
    long mp = across(x->m), ep = filled(y->e);
    if (x->queries.at) node_factors(x, &w->factors, i, head, from, s, w->node);
    if (y->e2_queries.at)
        product(s, mp, y->e, ROW(y->e2_queries, i, head, from), y->e2_queries.node, 1,
                w->keys_turned + head * mp * ep, mp, w->more, mp, 0);
    for (long j = 0; j < s; j++) {
        float *row = rows + j * mp, *own = stats + ((i * x->h + head) * x->n + from + j) * STATS;
        begin_source(x, &w->factors, j);
        float top = sum_row(x, &w->factors, i, head, from + j, row, w->node + j * mp, own, entropies);
        if (y->e2_queries.at) {
            vw most = SET(-INFINITY);
            for (long t = 0; t < mp; t += LANES) {
                vw sum = C(row + t) + C(w->more + j * mp + t);
                V(row + t) = sum;
                most = larger_of(most, sum);
            }
            top = largest(most);
        }
        own[TOP] = top;
    }
}

/* Sums of factors of one head and tile to exponentials, with what the backward pass needs of them. If there is one
   factor alone its entropy is that of the weights. */
static void exponentials(const Factors *x, long i, long from, long s, float *rows, float *own, double *sums,
                         int alone) {
    long mp = across(x->m), node = x->queries.at != 0;
    for (long j = 0; j < s; j++, rows += mp, own += STATS) {
        vw top = SET(own[TOP]), sum = SET(0.0f), dot = SET(0.0f);
        for (long t = 0; t < mp; t += LANES) {
            vw gap = C(rows + t) - top, value = exponential(gap);
            V(rows + t) = value;
            sum += value;
            dot += value * gap;
        }
        float z = total(sum);
        own[INV] = 1.0f / z;
        if (alone && sums) {
            float *part = own + (node ? NODE_TOP : EDGE_TOP), gap = total(dot) / z;
            part[0] = own[TOP], part[1] = own[INV], part[2] = gap;
            sums[node] += (double)entropy_weight(x, i, from + j) * (logf(z) - gap);
        }
    }
}

static void begin_attend(const Factors *x, const Attend *y, AttendWork *w, long i) {
    begin_graph(x, &w->factors, i);
    gather_values(x, y, w, i);
    if (y->e2_queries.at) gather_keys(y->e2_keys, i, x->h, x->m, y->e, w->keys, w->keys_turned);
}

/* One graph; outputs and stats as in `gm_attend`. */
static void attend_graph(const Factors *x, const Attend *y, long i, float *outs, float *address_outs, float *stats,
                         double *sums, float *work) {
    long tile = tile_of(x), mp = across(x->m), wp = width_of(y), vp = filled(y->v), h = x->h, n = x->n;
    int alone = !y->e2_queries.at && !(x->e1_weights.at && x->queries.at);
    AttendWork w = cut_work(x, y, work, &(long){0});
    begin_attend(x, y, &w, i);
    for (long from = 0; from < n; from += tile) {
        long s = smaller(tile, n - from);
        begin_tile(x, &w.factors, i, from, s);
        if (x->e1_weights.at) mix_addresses(x, &w.factors, i, from, s, w.edge);
        for (long head = 0; head < h; head++) {
            float *rows = w.edge + head * s * mp, *own = stats + ((i * h + head) * n + from) * STATS;
            sum_tile(x, y, &w, i, head, from, s, rows, stats, alone ? 0 : sums);
            exponentials(x, i, from, s, rows, own, sums, alone);
            product(s, wp, x->m, rows, mp, 1, w.values + head * mp * wp, wp, w.outs, wp, 0);
            for (long j = 0; j < s; j++) {
                long at = (i * n + from + j) * h + head;
                float *found = w.outs + j * wp;
                begin_source(x, &w.factors, j);
                float scale = w.factors.real ? own[j * STATS + INV] : 0.0f;
                for (long t = 0; t < wp; t += 8) V8(found + t) *= scale;
                copy_row(outs + at * y->v, found, y->v);
                if (y->a) copy_row(address_outs + at * y->a, found + vp, y->a);
            }
        }
    }
}

/* outs (b, n, h, v), address_outs (b, n, h, a), stats (b, h, n, STATS); entropies of graph i are its 2 i and 2 i + 1. */
void gm_attend(const Factors *x, const Attend *y, float *outs, float *address_outs, float *stats, double *entropies,
               float *work, int threads) {
    long size = gm_attend_work(x, y), h = x->h;
    EACH_PART(i, x->b) {
        Place p = place_of(x, i);
        Factors factors = factors_at(x, p);
        Attend attend = attend_at(x, y, p);
        double both[2] = {0}, *sums = entropies ? both : 0; /* threads would share lines of `entropies` */
        attend_graph(&factors, &attend, x->starts ? 0 : i, outs + p.row * h * y->v, address_outs + p.pair * h,
                     stats + p.row * h * STATS, sums, own_slice(work, size));
        if (sums) memcpy(entropies + 2 * i, sums, sizeof both);
    }
}

/* Gradients of [values | mixed addresses] to those of values, own weights and addresses, as in `mix_back`. */
static void values_back(const Factors *x, const Attend *y, const AttendGrads *grads, AttendWork *w, long i, int add) {
    long m = x->m, h = x->h, mp = across(m), wp = width_of(y), vp = filled(y->v);
    long ap = across(y->a), l = y->l, lp = filled(l), a = y->a;
    for (long head = 0; head < h; head++)
        scatter(w->value_grads + head * mp * wp, wp, m, y->v, grads->values, i, head, 0);
    if (!y->e2_addresses) return;
    for (long t = 0; t < m; t++) {
        const float *delta = w->value_grads + t * wp + vp;
        turn_rows(l, a, own_addresses(x, y, i, t), w->own_turned);
        product(h, lp, a, delta, mp * wp, 1, w->own_turned, lp, w->own_grads, lp, 0);
        begin_tile(x, &w->factors, i, t, 1);
        begin_source(x, &w->factors, 0);
        for (long head = 0; head < h; head++) {
            float *slopes = ROW(grads->own_weights, i, head, t);
            const float *row = delta + head * mp * wp;
            copy_row(slopes, w->own_grads + head * lp, l);
            given_slopes(x->given + (i * m + t) * x->g, x->g, row, x->given_scale, slopes + l);
            if (x->empty)
                slopes[l + x->g] = x->given_scale * empty_slope(w->factors.keep, w->factors.real, ap, row);
        }
        product_any(l, a, h, ROW(y->own_weights, i, 0, t), 1, y->own_weights.head, delta, mp * wp,
                    grads->e2_addresses + (i * m + t) * l * a, a, add);
    }
}

/* Weights of one head and tile again, in `more`, from mixed addresses `edge`; leaves node factors in `node` and
   logarithms of the mixed addresses in `logs`. */
static void weights_again(const Factors *x, const Attend *y, AttendWork *w, long i, long head, long from, long s,
                          const float *edge, const float *own) {
    long mp = across(x->m), ep = filled(y->e);
    if (x->queries.at) node_factors(x, &w->factors, i, head, from, s, w->node);
    if (y->e2_queries.at)
        product(s, mp, y->e, ROW(y->e2_queries, i, head, from), y->e2_queries.node, 1,
                w->keys_turned + head * mp * ep, mp, w->more, mp, 0);
    for (long j = 0; j < s; j++, edge += mp, own += STATS) {
        float *row = w->more + j * mp, temp = edge_temp(x, i, head, from + j);
        vw top = SET(own[TOP]), inv = SET(own[INV]);
        begin_source(x, &w->factors, j);
        if (!w->factors.real) { /* its sums of factors are not those of the forward pass */
            memset(row, 0, mp * sizeof(float));
            continue;
        }
        const float *logits = edge; /* logarithms in a loop of their own: a chain of both functions waits for itself */
        if (x->e1_weights.at && !x->logit_space) {
            float *logs = w->logs + j * mp;
            for (long t = 0; t < mp; t += LANES) V(logs + t) = logarithm(larger_of(SET(x->eps), C(edge + t)));
            logits = logs;
        }
        for (long t = 0; t < mp; t += LANES) {
            vw sum = SET(0.0f);
            if (y->e2_queries.at) sum = C(row + t);
            if (x->e1_weights.at) sum += SET(temp) * C(logits + t);
            if (x->queries.at) sum += C(w->node + j * mp + t);
            V(row + t) = inv * exponential(allowed(&w->factors, t, sum) - top);
        }
    }
}

/* Gradients of [values | addresses] of one head and tile, (s, wp); 0 for sources that may look nowhere. */
static void gather_out_grads(const Factors *x, const Attend *y, AttendWork *w, const Heads *d_outs,
                             const float *d_addresses, long i, long head, long from, long s) {
    long vp = filled(y->v), wp = width_of(y);
    for (long j = 0; j < s; j++) {
        float *above = w->outs + j * wp;
        begin_source(x, &w->factors, j);
        memset(above, 0, wp * sizeof(float));
        if (!w->factors.real) continue;
        copy_row(above, ROW(*d_outs, i, head, from + j), y->v);
        if (d_addresses) copy_row(above + vp, d_addresses + ((i * x->n + from + j) * x->h + head) * y->a, y->a);
    }
}

/* From gradients of weights in `delta` to those of sums of factors, and on to mixed addresses and node factors. */
static void rows_back(const Factors *x, AttendWork *w, const FactorGrads *grads, long i, long head, long from,
                      long s, const float *own, float *edge) {
    long mp = across(x->m);
    for (long j = 0; j < s; j++) {
        float *row = w->delta + j * mp;
        const float *weights = w->more + j * mp;
        vw dot = SET(0.0f), sum = dot;
        for (long t = 0; t < mp; t += LANES) dot += C(weights + t) * C(row + t), sum += C(weights + t);
        /* Weights made again add up to 1 but for rounding, which 1 / probabilities would magnify. */
        float all = total(sum);
        vw mean = SET(all > 0.0f ? total(dot) / all : 0.0f);
        for (long t = 0; t < mp; t += LANES) V(row + t) = C(weights + t) * (C(row + t) - mean);
        begin_source(x, &w->factors, j);
        const float *logs = w->factors.real ? w->logs + j * mp : 0;
        back_row(x, &w->factors, grads, i, head, from + j, row, own + j * STATS, logs, edge + j * mp,
                 w->node + j * mp);
    }
}

/* From gradients of sums of factors in `delta` to those of the second pair of queries and keys. */
static void e2_back(const Factors *x, const Attend *y, AttendWork *w, const AttendGrads *grads, long i, long head,
                    long from, long s) {
    long m = x->m, mp = across(m), ep = filled(y->e);
    gather(y->e2_queries, i, head, from, s, s, y->e, ep, w->queries);
    product(m, ep, s, w->delta, 1, mp, w->queries, ep, w->key_grads + head * mp * ep, ep, from > 0);
    product(s, ep, m, w->delta, mp, 1, w->keys + head * mp * ep, ep, w->queries, ep, 0);
    scatter(w->queries, ep, s, y->e, grads->e2_queries, i, head, from);
}

static void attend_graph_back(const Factors *x, const Attend *y, long i, const float *stats, const Heads *d_outs,
                              const float *d_addresses, const FactorGrads *factor_grads, const AttendGrads *grads,
                              float *work) {
    long tile = tile_of(x), m = x->m, mp = across(m), wp = width_of(y), ep = filled(y->e), h = x->h, n = x->n;
    AttendWork w = cut_work(x, y, work, &(long){0});
    begin_attend(x, y, &w, i);
    for (long from = 0; from < n; from += tile) {
        long s = smaller(tile, n - from);
        begin_tile(x, &w.factors, i, from, s);
        if (x->e1_weights.at) mix_addresses(x, &w.factors, i, from, s, w.edge);
        for (long head = 0; head < h; head++) {
            float *edge = w.edge + head * s * mp;
            const float *own = stats + ((i * h + head) * n + from) * STATS;
            weights_again(x, y, &w, i, head, from, s, edge, own);
            gather_out_grads(x, y, &w, d_outs, d_addresses, i, head, from, s);
            transpose(mp, wp, w.values + head * mp * wp, wp, w.turned, mp);
            product(s, mp, wp, w.outs, wp, 1, w.turned, mp, w.delta, mp, 0);
            product(m, wp, s, w.more, 1, mp, w.outs, wp, w.value_grads + head * mp * wp, wp, from > 0);
            rows_back(x, &w, factor_grads, i, head, from, s, own, edge);
            if (x->queries.at) node_back(x, &w.factors, factor_grads->queries, i, head, from, s, w.node, from > 0);
            if (y->e2_queries.at) e2_back(x, y, &w, grads, i, head, from, s);
        }
        if (x->e1_weights.at) mix_back(x, &w.factors, factor_grads, i, from, s, w.edge, 0);
    }
    end_graph(x, &w.factors, factor_grads, i);
    values_back(x, y, grads, &w, i, grads->e2_addresses == factor_grads->addresses); /* one tensor for both */
    if (y->e2_queries.at)
        for (long head = 0; head < h; head++)
            scatter(w.key_grads + head * mp * ep, ep, m, y->e, grads->e2_keys, i, head, 0);
}

/* d_outs (rows of v), d_addresses (b, n, h, a) or null. */
void gm_attend_backward(const Factors *x, const Attend *y, const float *stats, const Heads *d_outs,
                        const float *d_addresses, const FactorGrads *factor_grads, const AttendGrads *grads, float *work,
                        int threads) {
    long size = gm_attend_work(x, y), h = x->h;
    EACH_PART(i, x->b) {
        Place p = place_of(x, i);
        Factors factors = factors_at(x, p);
        Attend attend = attend_at(x, y, p);
        Heads above = moved(*d_outs, p.row);
        FactorGrads own = factor_grads_at(x, factor_grads, p);
        AttendGrads rest = attend_grads_at(y, grads, p);
        attend_graph_back(&factors, &attend, x->starts ? 0 : i, stats + p.row * h * STATS, &above,
                          d_addresses ? d_addresses + p.pair * h : 0, &own, &rest, own_slice(work, size));
    }
}
