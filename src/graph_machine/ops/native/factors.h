/* The two n2 factors of a tile of sources, and their gradients; shared by attention and referral.

   Factors lie head-major, (h, s, mp), a tile of s sources at a time. Edge factors of one source are a product
   of its weights over slots (h, k) with its addresses (k, mp); node factors of one head one of queries (s, d)
   with keys (d, mp). Weights over slots may have more columns than there are addresses: g given edges, each of one
   target, and an empty edge, even over all targets that may be seen. */

#include "common.h"

/* What decides where n1 looks; the head stride of keys and so on is 0 or more, an absent part has at = 0. */
typedef struct {
    long b, h, n, k, m, d;
    Heads e1_weights, edge_temps, queries, keys; /* rows of k + g + empty, 1, d, d */
    const float *addresses;                      /* b n k m */
    const int *given;                            /* b n g: targets, -1 where there is no edge */
    long g, empty;                               /* empty is 0 or 1 */
    const unsigned char *mask;                   /* rows of m through two strides */
    const float *entropy_weights;
    long mask_graph, mask_source, weight_graph, weight_source;
    float eps, given_scale;                      /* the mass of a given or an empty edge */
    int logit_space;
    const long *starts, *squares;                /* null, or of packed graphs: see `Packed` below */
} Factors;

typedef struct {
    Heads e1_weights, edge_temps, queries, keys;
    float *addresses;
    float edge_slope, node_slope; /* given: gradients of the two entropies */
} FactorGrads;

/* Packed graphs lie one after the other, without padding: the nodes of graph i are rows starts[i] to starts[i + 1], and
   its pairs of nodes begin at squares[i]. Then b counts them, n = m = a is the size of the largest, and all tensors
   are those of one graph with all these rows; but addresses have blocks (nodes, slots, nodes). There are no masks and
   no entropies. Each graph is worked on as if it were alone: `Place` says where it is. */
typedef struct {
    long row, pair, nodes;
} Place;

INLINE Place place_of(const Factors *x, long i) {
    return x->starts ? (Place){x->starts[i], x->squares[i], x->starts[i + 1] - x->starts[i]} : (Place){0, 0, x->n};
}

INLINE Heads moved(Heads x, long rows) {
    if (x.at) x.at += rows * x.node;
    return x;
}

static Factors factors_at(const Factors *x, Place p) {
    Factors own = *x;
    if (!x->starts) return own;
    own.n = own.m = p.nodes;
    own.e1_weights = moved(x->e1_weights, p.row), own.edge_temps = moved(x->edge_temps, p.row);
    own.queries = moved(x->queries, p.row), own.keys = moved(x->keys, p.row);
    if (x->addresses) own.addresses += x->k * p.pair;
    own.given += x->g * p.row;
    return own;
}

static FactorGrads factor_grads_at(const Factors *x, const FactorGrads *grads, Place p) {
    FactorGrads own = *grads;
    own.e1_weights = moved(own.e1_weights, p.row), own.edge_temps = moved(own.edge_temps, p.row);
    own.queries = moved(own.queries, p.row), own.keys = moved(own.keys, p.row);
    if (own.addresses) own.addresses += x->k * p.pair;
    return own;
}

/* What the forward pass leaves for the backward pass, per row: the largest sum of factors, 1 / the sum of
   exponentials above it; and for each factor with an entropy these two and the mean of its gaps. */
#define STATS 8
enum { TOP, INV, EDGE_TOP, EDGE_INV, EDGE_GAP, NODE_TOP, NODE_INV, NODE_GAP };

/* Work memory of a thread for factors: keys of a graph both ways, and some rows. */
typedef struct {
    float *keys, *turned;          /* h mp dp, h dp mp */
    float *key_grads;              /* h mp dp */
    float *slots;                  /* mp kp */
    float *weight_grads;           /* h kp */
    float *queries;                /* s dp */
    float *keeps, *fills, *reals;  /* s mp, s mp, s: of every source of a tile, as the next three */
    float *keep, *fill;            /* mp: bits of allowed targets, and what others become */
    float real;                    /* targets that the source may look at */
} FactorWork;

static FactorWork cut_factor_work(const Factors *x, long s, float **at) {
    long mp = across(x->m), dp = filled(x->d), kp = filled(x->k);
    return (FactorWork){
        .keys = take(at, x->h * mp * dp),
        .turned = take(at, x->h * mp * dp),
        .key_grads = take(at, x->h * mp * dp),
        .slots = take(at, mp * kp),
        .weight_grads = take(at, filled(x->h) * kp),
        .queries = take(at, s * dp),
        .keeps = take(at, s * mp),
        .fills = take(at, s * mp),
        .reals = take(at, s),
    };
}

/* Rows of one head into a matrix filled up to (rp, wp). */
static void gather(Heads x, long i, long head, long from, long rows, long rp, long width, long wp, float *out) {
    for (long j = 0; j < rows; j++) fill_row(out + j * wp, ROW(x, i, head, from + j), width, wp);
    memset(out + rows * wp, 0, (rp - rows) * wp * sizeof(float));
}

static void scatter(const float *in, long wp, long rows, long width, Heads x, long i, long head, long from) {
    for (long j = 0; j < rows; j++) copy_row(ROW(x, i, head, from + j), in + j * wp, width);
}

/* Keys of a graph, (h, mp, dp) and turned, (h, dp, mp). */
static void gather_keys(Heads keys, long i, long h, long m, long d, float *out, float *turned) {
    long mp = across(m), dp = filled(d);
    for (long head = 0; head < h; head++) {
        gather(keys, i, head, 0, m, mp, d, dp, out + head * mp * dp);
        transpose(mp, dp, out + head * mp * dp, dp, turned + head * mp * dp, mp);
    }
}

static void begin_graph(const Factors *x, FactorWork *w, long i) {
    if (x->queries.at) gather_keys(x->keys, i, x->h, x->m, x->d, w->keys, w->turned);
}

/* Which targets the sources of a tile may look at; without a mask, all sources share one row. */
static void begin_tile(const Factors *x, FactorWork *w, long i, long from, long s) {
    long mp = across(x->m);
    for (long j = 0; j < (x->mask ? s : 1); j++) {
        const unsigned char *mask = x->mask ? x->mask + i * x->mask_graph + (from + j) * x->mask_source : 0;
        int *keep = (int *)(w->keeps + j * mp), count = 0;
        float *fill = w->fills + j * mp;
        for (long t = 0; t < mp; t++) {
            int seen = t < x->m && (!mask || mask[t]);
            keep[t] = -seen;
            fill[t] = seen ? 0.0f : t < x->m ? MASKED : FILL;
            count += seen;
        }
        w->reals[j] = count;
    }
}

INLINE void begin_source(const Factors *x, FactorWork *w, long j) {
    long at = x->mask ? j : 0;
    w->keep = w->keeps + at * across(x->m);
    w->fill = w->fills + at * across(x->m);
    w->real = w->reals[at];
}

INLINE vw allowed(const FactorWork *w, long t, vw x) {
    return (vw)(((vwi)x & (vwi)C(w->keep + t)) | (vwi)C(w->fill + t));
}

/* Addresses of source j, (k, m). */
INLINE const float *addresses_of(const Factors *x, long i, long j) {
    const float *found = x->addresses + (i * x->n + j) * x->k * x->m;
    expect(found + x->k * x->m, x->k * x->m); /* of the next one */
    return found;
}

/* Adds the given edges and the empty edge of one row of weights to its mixed addresses. */
INLINE void add_given(const int *given, long g, const float *weights, float scale, float *out) {
    for (long q = 0; q < g; q++)
        if (given[q] >= 0) out[given[q]] += scale * weights[q];
}

INLINE void add_empty(const float *keep, float count, long mp, float weight, float *out) {
    vw share = SET(count > 0.0f ? weight / count : 0.0f);
    for (long t = 0; t < mp; t += LANES) V(out + t) += (vw)((vwi)share & (vwi)C(keep + t));
}

/* Gradients of these weights from that of the mixed addresses. */
INLINE void given_slopes(const int *given, long g, const float *delta, float scale, float *out) {
    for (long q = 0; q < g; q++) out[q] = given[q] >= 0 ? scale * delta[given[q]] : 0.0f;
}

INLINE float empty_slope(const float *keep, float count, long mp, const float *delta) {
    vw sum = SET(0.0f);
    for (long t = 0; t < mp; t += LANES) sum += (vw)((vwi)C(delta + t) & (vwi)C(keep + t));
    return count > 0.0f ? total(sum) / count : 0.0f;
}

/* Mixed addresses of a tile of sources, (h, s, mp). */
static void mix_addresses(const Factors *x, FactorWork *w, long i, long from, long s, float *out) {
    long mp = across(x->m);
    for (long j = 0; j < s; j++) {
        for (long head = 0; head < x->h && mp > x->m; head++) V(out + (head * s + j + 1) * mp - LANES) = SET(0.0f);
        product_any(x->h, x->m, x->k, ROW(x->e1_weights, i, 0, from + j), x->e1_weights.head, 1,
                    addresses_of(x, i, from + j), x->m, out + j * mp, s * mp, 0);
        if (!x->g && !x->empty) continue;
        begin_source(x, w, j);
        const int *given = x->given + (i * x->n + from + j) * x->g;
        for (long head = 0; head < x->h; head++) {
            const float *weights = ROW(x->e1_weights, i, head, from + j) + x->k;
            float *row = out + (head * s + j) * mp;
            add_given(given, x->g, weights, x->given_scale, row);
            if (x->empty) add_empty(w->keep, w->real, mp, x->given_scale * weights[x->g], row);
        }
    }
}

/* Node factors of one head, (s, mp). */
static void node_factors(const Factors *x, const FactorWork *w, long i, long head, long from, long s, float *out) {
    long mp = across(x->m), dp = filled(x->d);
    product(s, mp, x->d, ROW(x->queries, i, head, from), x->queries.node, 1, w->turned + head * mp * dp, mp, out,
            mp, 0);
}

/* Mixed addresses to logits and factors of one row; any of the three may be the same. Returns the largest. */
INLINE vw edge_row(const Factors *x, const FactorWork *w, long mp, float temp, const float *mixed, float *logits,
                   float *factors) {
    vw top = SET(-INFINITY);
    for (long t = 0; t < mp; t += LANES) {
        vw value = C(mixed + t);
        if (!x->logit_space) value = logarithm(larger_of(SET(x->eps), value));
        V(logits + t) = value;
        value = allowed(w, t, SET(temp) * value);
        V(factors + t) = value;
        top = larger_of(top, value);
    }
    return top;
}

/* Entropy of softmax(f), log Z - <p, f - top>, and its stats. */
static float entropy_row(long mp, const float *f, float top, float *stats) {
    vw sum = SET(0.0f), dot = SET(0.0f);
    for (long t = 0; t < mp; t += LANES) {
        vw gap = C(f + t) - SET(top), y = exponential(gap);
        sum += y;
        dot += y * gap;
    }
    float z = total(sum), gap = total(dot) / z;
    stats[0] = top, stats[1] = 1.0f / z, stats[2] = gap;
    return logf(z) - gap;
}

INLINE float edge_temp(const Factors *x, long i, long head, long j) {
    return x->edge_temps.at ? *ROW(x->edge_temps, i, head, j) : 1.0f;
}

INLINE float entropy_weight(const Factors *x, long i, long j) {
    return x->entropy_weights ? x->entropy_weights[i * x->weight_graph + j * x->weight_source] : 0.0f;
}

/* The sum of both factors of one row in place of the mixed addresses in `edge` (which holds nothing if there is
   no edge expert); `node` are node factors. Adds to the entropies where they are asked for. Returns the
   largest of the sum. */
static float sum_row(const Factors *x, const FactorWork *w, long i, long head, long j, float *edge, float *node,
                     float *stats, double *entropies) {
    long mp = across(x->m);
    int has_edge = x->e1_weights.at != 0, has_node = x->queries.at != 0;
    double weight = entropy_weight(x, i, j);
    vw top = SET(-INFINITY), node_top = top;
    if (has_edge) {
        top = edge_row(x, w, mp, edge_temp(x, i, head, j), edge, edge, edge);
        if (entropies) entropies[0] += weight * entropy_row(mp, edge, largest(top), stats + EDGE_TOP);
        if (!has_node) return largest(top);
    }
    top = SET(-INFINITY);
    for (long t = 0; t < mp; t += LANES) {
        vw value = allowed(w, t, C(node + t)), sum = value;
        if (has_edge) sum += C(edge + t);
        V(node + t) = value;
        V(edge + t) = sum;
        node_top = larger_of(node_top, value);
        top = larger_of(top, sum);
    }
    if (entropies) entropies[1] += weight * entropy_row(mp, node, largest(node_top), stats + NODE_TOP);
    return largest(top);
}

/* grad -= weight * p (gap - <p, gap>): the slope of the entropy of softmax(f). */
INLINE vw entropy_slope(vw f, const float *stats, float weight) {
    vw gap = f - SET(stats[0]);
    return SET(weight * stats[1]) * exponential(gap) * (gap - SET(stats[2]));
}

/* From the gradient of the sum of factors of one row: that of mixed addresses in place of them, and that of node
   factors in place of those. `logs` of the mixed addresses may be null: they are made again. */
static void back_row(const Factors *x, const FactorWork *w, const FactorGrads *grads, long i, long head, long j,
                     const float *given, const float *stats, const float *logs, float *edge, float *node) {
    long mp = across(x->m);
    float weight = entropy_weight(x, i, j);
    if (x->e1_weights.at) {
        float temp = edge_temp(x, i, head, j), share = weight * grads->edge_slope;
        vw slope = SET(0.0f), eps = SET(x->eps);
        for (long t = 0; t < mp; t += LANES) {
            vw mixed = C(edge + t), floor_ = mixed, logits = mixed, delta = C(given + t);
            if (!x->logit_space) {
                floor_ = larger_of(eps, mixed);
                logits = logs ? C(logs + t) : logarithm(floor_);
            }
            if (share != 0.0f) delta -= entropy_slope(allowed(w, t, SET(temp) * logits), stats + EDGE_TOP, share);
            slope += delta * logits;
            delta *= SET(temp);
            if (!x->logit_space) delta = (vw)((vwi)(delta / floor_) & (vwi)(mixed >= eps));
            V(edge + t) = delta;
        }
        if (x->edge_temps.at) *ROW(grads->edge_temps, i, head, j) = total(slope);
    }
    if (x->queries.at) {
        float share = weight * grads->node_slope;
        for (long t = 0; t < mp; t += LANES) {
            vw delta = C(given + t);
            if (share != 0.0f) delta -= entropy_slope(allowed(w, t, C(node + t)), stats + NODE_TOP, share);
            V(node + t) = delta;
        }
    }
}

/* From the gradient of node factors of one head (s, mp) to those of queries and, summed up, keys. */
static void node_back(const Factors *x, const FactorWork *w, Heads d_queries, long i, long head, long from, long s,
                      const float *delta, int add) {
    long mp = across(x->m), dp = filled(x->d);
    gather(x->queries, i, head, from, s, s, x->d, dp, w->queries);
    product(x->m, dp, s, delta, 1, mp, w->queries, dp, w->key_grads + head * mp * dp, dp, add);
    product(s, dp, x->m, delta, mp, 1, w->keys + head * mp * dp, dp, w->queries, dp, 0);
    scatter(w->queries, dp, s, x->d, d_queries, i, head, from);
}

/* From the gradient of mixed addresses (h, s, mp) to those of weights over slots and addresses; if `add`, the latter
   are added to what is there. */
static void mix_back(const Factors *x, FactorWork *w, const FactorGrads *grads, long i, long from, long s,
                     const float *delta, int add) {
    long m = x->m, mp = across(m), k = x->k, kp = filled(k), h = x->h;
    for (long j = 0; j < s; j++) {
        const float *rows = delta + j * mp;
        turn_rows(k, m, addresses_of(x, i, from + j), w->slots);
        product(h, kp, m, rows, s * mp, 1, w->slots, kp, w->weight_grads, kp, 0);
        begin_source(x, w, j);
        for (long head = 0; head < h; head++) {
            float *slopes = ROW(grads->e1_weights, i, head, from + j);
            const float *row = rows + head * s * mp;
            copy_row(slopes, w->weight_grads + head * kp, k);
            given_slopes(x->given + (i * x->n + from + j) * x->g, x->g, row, x->given_scale, slopes + k);
            if (x->empty) slopes[k + x->g] = x->given_scale * empty_slope(w->keep, w->real, mp, row);
        }
        product_any(k, m, h, ROW(x->e1_weights, i, 0, from + j), 1, x->e1_weights.head, rows, s * mp,
                    grads->addresses + (i * x->n + from + j) * k * m, m, add);
    }
}

static void end_graph(const Factors *x, const FactorWork *w, const FactorGrads *grads, long i) {
    long mp = across(x->m), dp = filled(x->d);
    if (!x->queries.at) return;
    for (long head = 0; head < x->h; head++)
        scatter(w->key_grads + head * mp * dp, dp, x->m, x->d, grads->keys, i, head, 0);
}

/* Sources at a time: a tile's factors should stay in the second cache beside the rest. But every tile reads all values
   once, so that tiles of large graphs have 96 sources. */
static long tile_of(const Factors *x) {
    long most = 65536 / (x->h * across(x->m));
    most = most < 96 ? 96 : most / BLOCK_ROWS * BLOCK_ROWS;
    if (most >= x->n) return x->n;
    long parts = (x->n + most - 1) / most, even = (x->n + parts - 1) / parts;
    return smaller(most, (even + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS);
}
