/* Joint and conditional referral: one softmax over all pairs (e2, n2), or one over n2 times one over the slots of
   each n2; forward and backward.

   Pairs c = (slot, target) lie slot-major. Weights are computed transposed, (c, R) for a tile of R rows (head, source),
   so that everything but products runs along rows: softmaxes, sums over slots and biases have no tails and no
   sums across a vector. The backward pass works on a few slots at a time, which stay in the first cache.

   A given edge has one target: what its weight collects is added to one row of the turned outputs, and no product is
   needed. Its slots come last; the empty edge is a slot like others, with a row of addresses that is made here. */

#include "factors.h"

/* Rows r of a graph are u sets of r / u, each with keys and values of its own. */
typedef struct {
    long u, l, d, e, a, v;
    Heads queries;                /* rows of d */
    Heads keys, values;           /* (b, u, m) rows of l d and l e */
    Heads n2_values;              /* rows of v */
    const float *addresses;       /* b m made a: slots that are neither given nor empty */
    int conditional;
} Refer;

typedef struct {
    Heads queries, keys, values, n2_values;
    float *addresses;
} ReferGrads;

typedef struct {
    float *addresses, *e2, *n2; /* b n h of a, e, v */
} ReferOuts;

/* Pairs that are worked on together. */
#define CHUNK 96

typedef struct {
    FactorWork factors;
    float *sums, *node;                      /* h n mp and LANES rows more, s mp */
    float *keys, *key_grads;                 /* c dp */
    float *wide, *wide_grads;                /* of slots with addresses, c wp: [addresses | values], each filled up */
    float *given, *given_grads;              /* values of given edges, c ep */
    float *n2_values, *n2_value_grads;       /* h mp vp */
    float *queries, *turned;                 /* R dp, dp R */
    float *bias, *n2, *slope, *n2_slope;     /* mp R */
    float *weights, *delta;                  /* c R, chunk R (conditional: c R) */
    float *outs, *outs_turned, *query_grads; /* R wp, wp R, dp R */
    float *n2_outs, *n2_turned;              /* R vp, vp R */
    float *rows, *lane;                      /* R mp, R */
    float *edge;                             /* h s mp */
    float *slot_bias;                        /* c, or null */
    float *more;                             /* R wp */
} ReferWork;

INLINE vw bias_of(const ReferWork *w, long pair) { return SET(w->slot_bias ? w->slot_bias[pair] : 0.0f); }

/* Slots with rows of addresses; the given ones come after them. */
INLINE long dense_slots(const Factors *x, const Refer *y) { return y->l - x->g; }
/* Where the caller has this slot: the empty one comes last there. */
INLINE long slot_of(const Factors *x, const Refer *y, long slot) {
    long made = y->l - x->g - x->empty;
    return slot < made ? slot : x->empty && slot == made ? y->l - 1 : slot - x->empty;
}

INLINE long wide_of(const Refer *y) { return filled(y->a) + filled(y->e); }
INLINE long chunk_slots(long m, long l) { return m >= CHUNK ? 1 : smaller(l, CHUNK / m); }
INLINE long chunk_targets(long m) { /* even parts of at most 160 */
    long parts = (m + 159) / 160;
    return (m + parts - 1) / parts;
}

static ReferWork cut_work(const Factors *x, const Refer *y, float *at, long *size) {
    long n = x->n, s = tile_of(x), h = x->h, mp = across(x->m), c = y->l * x->m, dp = filled(y->d), wp = wide_of(y);
    long vp = filled(y->v), chunk = chunk_slots(x->m, y->l) * chunk_targets(x->m);
    long dense = dense_slots(x, y) * x->m, given = x->g * x->m * filled(y->e);
    float *p = at;
    ReferWork w = {
        .factors = cut_factor_work(x, n, &p),
        .sums = take(&p, (h * n + LANES) * mp),
        .node = take(&p, n * mp),
        .keys = take(&p, c * dp),
        .key_grads = take(&p, c * dp),
        .wide = take(&p, dense * wp),
        .wide_grads = take(&p, dense * wp),
        .given = take(&p, given),
        .given_grads = take(&p, given),
        .n2_values = take(&p, h * mp * vp),
        .n2_value_grads = take(&p, h * mp * vp),
        .queries = take(&p, TILE * dp),
        .turned = take(&p, TILE * dp),
        .bias = take(&p, mp * TILE),
        .n2 = take(&p, mp * TILE),
        .slope = take(&p, mp * TILE),
        .n2_slope = take(&p, mp * TILE),
        .weights = take(&p, c * TILE),
        .delta = take(&p, (y->conditional ? c : chunk) * TILE),
        .outs = take(&p, TILE * wp),
        .outs_turned = take(&p, TILE * wp),
        .query_grads = take(&p, TILE * dp),
        .n2_outs = take(&p, TILE * vp),
        .n2_turned = take(&p, TILE * vp),
        .rows = take(&p, TILE * (mp > vp ? mp : vp)),
        .lane = take(&p, TILE),
        .edge = take(&p, h * s * mp),
        .slot_bias = x->g ? take(&p, c) : 0,
        .more = take(&p, TILE * wp),
    };
    *size = p - at + 64;
    return w;
}

static Refer refer_at(const Factors *x, const Refer *y, Place p) {
    Refer own = *y;
    if (!x->starts) return own;
    own.a = p.nodes;
    own.queries = moved(y->queries, p.row), own.keys = moved(y->keys, p.row);
    own.values = moved(y->values, p.row), own.n2_values = moved(y->n2_values, p.row);
    own.addresses += (y->l - x->g - x->empty) * p.pair;
    return own;
}

static ReferGrads refer_grads_at(const Factors *x, const Refer *y, const ReferGrads *grads, Place p) {
    ReferGrads own = *grads;
    own.queries = moved(own.queries, p.row), own.keys = moved(own.keys, p.row);
    own.values = moved(own.values, p.row), own.n2_values = moved(own.n2_values, p.row);
    own.addresses += (y->l - x->g - x->empty) * p.pair;
    return own;
}

static ReferOuts refer_outs_at(const Factors *x, const Refer *y, const ReferOuts *outs, Place p) {
    return (ReferOuts){outs->addresses + p.pair * x->h, outs->e2 + p.row * x->h * y->e, outs->n2 + p.row * x->h * y->v};
}

/* Numbers of `work` per thread: a graph of middle size may need most, as its tiles are larger. */
long gm_refer_work(const Factors *x, const Refer *y) {
    long most = 0, size;
    for (long i = 0; i < (x->starts ? x->b : 1); i++) {
        Place p = place_of(x, i);
        Factors factors = factors_at(x, p);
        Refer refer = refer_at(x, y, p);
        cut_work(&factors, &refer, 0, &size);
        most = size > most ? size : most;
    }
    return most;
}

/* Slots `from` to `to` of (m, l, width) of a graph to slot-major rows `ld` apart, filled up to wp; and back. */
static void slot_major(const Factors *x, const Refer *y, const float *in, long node, long from, long to, long width,
                       long wp, float *out, long ld) {
    for (long t = 0; t < x->m; t++)
        for (long slot = from; slot < to; slot++)
            fill_row(out + ((slot - from) * x->m + t) * ld, in + t * node + slot_of(x, y, slot) * width, width, wp);
}

static void node_major(const Factors *x, const Refer *y, const float *in, long ld, long from, long to, long width,
                       float *out, long node) {
    for (long t = 0; t < x->m; t++)
        for (long slot = from; slot < to; slot++)
            copy_row(out + t * node + slot_of(x, y, slot) * width, in + ((slot - from) * x->m + t) * ld, width);
}

/* Sums of both factors of a graph, (h, n, mp), with their entropies if these are asked for. */
static void sum_graph(const Factors *x, ReferWork *w, long i, float *stats, double *entropies) {
    long mp = across(x->m), n = x->n;
    float none[STATS];
    begin_graph(x, &w->factors, i);
    begin_tile(x, &w->factors, i, 0, n);
    if (x->e1_weights.at) mix_addresses(x, &w->factors, i, 0, n, w->sums);
    for (long head = 0; head < x->h; head++) {
        if (x->queries.at) node_factors(x, &w->factors, i, head, 0, n, w->node);
        for (long j = 0; j < n; j++) {
            long row = head * n + j;
            begin_source(x, &w->factors, j);
            sum_row(x, &w->factors, i, head, j, w->sums + row * mp, w->node + j * mp,
                    entropies ? stats + (i * x->h * n + row) * STATS : none, entropies);
        }
    }
    memset(w->sums + x->h * n * mp, 0, LANES * mp * sizeof(float));
}

static void begin_set(const Factors *x, const Refer *y, const ReferWork *w, long i, long set) {
    long wp = wide_of(y), ap = filled(y->a), dp = filled(y->d), ep = filled(y->e), dense = dense_slots(x, y);
    const float *values = ROW(y->values, i, set, 0);
    slot_major(x, y, ROW(y->keys, i, set, 0), y->keys.node, 0, y->l, y->d, dp, w->keys, dp);
    slot_major(x, y, values, y->values.node, 0, dense, y->e, ep, w->wide + ap, wp);
    slot_major(x, y, values, y->values.node, dense, y->l, y->e, ep, w->given, ep);
}

static void begin_refer(const Factors *x, const Refer *y, ReferWork *w, long i) {
    long m = x->m, vp = filled(y->v), mp = across(m), ap = filled(y->a), wp = wide_of(y);
    long dense = dense_slots(x, y), made = dense - x->empty;
    slot_major(x, y, y->addresses + i * m * made * y->a, made * y->a, 0, made, y->a, ap, w->wide, wp);
    for (long t = 0; x->empty && t < m; t++) {
        float *row = w->wide + (made * m + t) * wp;
        memset(row, 0, ap * sizeof(float));
        begin_source(x, &w->factors, t);
        for (long q = 0; w->factors.real > 0.0f && q < y->a; q++)
            row[q] = ((int *)w->factors.keep)[q] ? x->given_scale / w->factors.real : 0.0f;
    }
    for (long head = 0; head < x->h; head++)
        gather(y->n2_values, i, head, 0, m, mp, y->v, vp, w->n2_values + head * mp * vp);
    for (long c = 0; w->slot_bias && c < y->l * m; c++) {
        long slot = c / m, t = c % m;
        int absent = slot >= dense && x->given[(i * m + t) * x->g + slot - dense] < 0;
        w->slot_bias[c] = absent ? MASKED : 0.0f;
    }
}

/* What weights `s` (count, R) of given edges collect, added to the turned outputs: `first` is the first of the pairs. */
static void collect_given(const Factors *x, const Refer *y, const ReferWork *w, long i, long rp, long first, long count,
                          const float *s) {
    long m = x->m, ap = filled(y->a), ep = filled(y->e), dense = dense_slots(x, y) * m;
    for (long c = 0; c < count; c++) {
        long pair = first + c - dense, target = x->given[(i * m + pair % m) * x->g + pair / m];
        if (target < 0) continue;
        float *to = w->outs_turned + target * rp;
        for (long q = 0; q < rp; q += LANES) V(to + q) += SET(x->given_scale) * C(s + c * rp + q);
    }
    product(y->e, rp, count, w->given + (first - dense) * ep, 1, ep, s, rp, w->outs_turned + ap * rp, rp, 1);
}

static void begin_given(const Factors *x, const Refer *y, const ReferWork *w, long rp) {
    if (x->g) memset(w->outs_turned, 0, wide_of(y) * rp * sizeof(float));
    if (!dense_slots(x, y)) memset(w->outs, 0, TILE * wide_of(y) * sizeof(float));
}

/* The turned outputs added to the others. */
static void end_given(const Factors *x, const Refer *y, const ReferWork *w, long rows, long rp) {
    long wp = wide_of(y);
    if (!x->g) return;
    transpose(wp, rp, w->outs_turned, rp, w->more, wp);
    for (long t = 0; t < rows * wp; t += 8) V8(w->outs + t) += C8(w->more + t);
}

/* Queries of a tile's rows, both ways, and their sums of factors, turned. */
static void begin_rows(const Factors *x, const Refer *y, const ReferWork *w, long i, long at, long rows) {
    long dp = filled(y->d), mp = across(x->m), rp = across(rows);
    for (long r = 0; r < rows; r++)
        fill_row(w->queries + r * dp, ROW(y->queries, i, (at + r) / x->n, (at + r) % x->n), y->d, dp);
    memset(w->queries + rows * dp, 0, (rp - rows) * dp * sizeof(float));
    transpose(rp, dp, w->queries, dp, w->turned, rp);
    transpose(rp, mp, w->sums + at * mp, mp, w->bias, rp);
}

INLINE int is_real(const Factors *x, const ReferWork *w, long row) {
    return w->factors.reals[x->mask ? row % x->n : 0] != 0.0f;
}

/* Of a tile's rows, those of the head that row `from` belongs to: their end. */
INLINE long head_end(const Factors *x, long at, long from, long rows) {
    return smaller(rows, ((at + from) / x->n + 1) * x->n - at);
}

/* Softmax weights of a tile without their denominators, (c, R), the sums over slots in n2 and outs; tops and
   1 / denominators go to the rows' stats. */
static void weigh(const Factors *x, const Refer *y, const ReferWork *w, long i, long rows, float *stats) {
    long m = x->m, l = y->l, dense = dense_slots(x, y), rp = across(rows), dp = filled(y->d), wp = wide_of(y);
    long slots = chunk_slots(m, l), targets = chunk_targets(m);
    for (long q = 0; q < rp; q += LANES) V(w->lane + q) = SET(-INFINITY);
    for (long slot = 0; slot < l; slot += slots)
        for (long from = 0; from < m; from += targets) {
            long many = smaller(slots, l - slot), part = smaller(targets, m - from);
            float *s = w->weights + (slot * m + from) * rp;
            product(many * part, rp, y->d, w->keys + (slot * m + from) * dp, dp, 1, w->turned, rp, s, rp, 0);
            for (long q = 0; q < rp; q += LANES) {
                vw top = C(w->lane + q);
                for (long o = 0; o < many; o++)
                    for (long t = 0; t < part; t++) {
                        vw value = C(s + (o * part + t) * rp + q) + C(w->bias + (from + t) * rp + q);
                        value += bias_of(w, (slot + o) * m + from + t);
                        V(s + (o * part + t) * rp + q) = value;
                        top = larger_of(top, value);
                    }
                V(w->lane + q) = top;
            }
        }
    for (long r = 0; r < rows; r++) stats[r * STATS + TOP] = w->lane[r];
    memset(w->n2, 0, across(m) * rp * sizeof(float));
    float sums[TILE];
    memset(sums, 0, sizeof sums);
    begin_given(x, y, w, rp);
    for (long slot = 0, many; slot < l; slot += many)
        for (long from = 0; from < m; from += targets) {
            many = smaller(slots, (slot < dense ? dense : l) - slot);
            long part = smaller(targets, m - from);
            float *s = w->weights + (slot * m + from) * rp;
            for (long q = 0; q < rp; q += LANES) {
                vw top = C(w->lane + q), sum = C(sums + q);
                for (long o = 0; o < many; o++)
                    for (long t = 0; t < part; t++) {
                        float *at = s + (o * part + t) * rp + q, *n2 = w->n2 + (from + t) * rp + q;
                        vw value = exponential(C(at) - top);
                        V(at) = value;
                        V(n2) += value;
                        sum += value;
                    }
                V(sums + q) = sum;
            }
            if (slot < dense)
                product(rows, wp, many * part, s, 1, rp, w->wide + (slot * m + from) * wp, wp, w->outs, wp,
                        slot + from > 0);
            else collect_given(x, y, w, i, rp, slot * m + from, many * part, s);
        }
    end_given(x, y, w, rows, rp);
    for (long r = 0; r < rp; r++) w->lane[r] = 1.0f / sums[r];
    for (long r = 0; r < rows; r++) stats[r * STATS + INV] = w->lane[r];
}

/* Softmax of a tile's sums of factors over targets, in n2. */
static void n2_softmax(const ReferWork *w, long m, long rp) {
    for (long q = 0; q < rp; q += LANES) {
        vw top = SET(-INFINITY), sum = SET(0.0f);
        for (long t = 0; t < m; t++) top = larger_of(top, C(w->bias + t * rp + q));
        for (long t = 0; t < m; t++) {
            vw value = exponential(C(w->bias + t * rp + q) - top);
            V(w->n2 + t * rp + q) = value;
            sum += value;
        }
        for (long t = 0; t < m; t++) V(w->n2 + t * rp + q) /= sum;
    }
}

/* Softmax over the l slots of target t, numbers `step` apart, in place. */
INLINE void slot_softmax(const ReferWork *w, long l, long m, long t, long step, float *s) {
    vw top = SET(-INFINITY), sum = SET(0.0f);
    for (long slot = 0; slot < l; slot++) {
        V(s + slot * step) += bias_of(w, slot * m + t);
        top = larger_of(top, C(s + slot * step));
    }
    for (long slot = 0; slot < l; slot++) {
        vw value = exponential(C(s + slot * step) - top);
        V(s + slot * step) = value;
        sum += value;
    }
    for (long slot = 0; slot < l; slot++) V(s + slot * step) /= sum;
}

/* As `weigh` for conditional weights, which have their denominators. */
static void weigh_given(const Factors *x, const Refer *y, const ReferWork *w, long i, long rows) {
    long m = x->m, l = y->l, dense = dense_slots(x, y) * m, rp = across(rows), dp = filled(y->d), wp = wide_of(y);
    n2_softmax(w, m, rp);
    product(l * m, rp, y->d, w->keys, dp, 1, w->turned, rp, w->weights, rp, 0);
    for (long t = 0; t < m; t++)
        for (long q = 0; q < rp; q += LANES) {
            float *s = w->weights + t * rp + q;
            slot_softmax(w, l, m, t, m * rp, s);
            for (long slot = 0; slot < l; slot++) V(s + slot * m * rp) *= C(w->n2 + t * rp + q);
        }
    product(rows, wp, dense, w->weights, 1, rp, w->wide, wp, w->outs, wp, 0);
    begin_given(x, y, w, rp);
    if (x->g) collect_given(x, y, w, i, rp, dense, l * m - dense, w->weights + dense * rp);
    end_given(x, y, w, rows, rp);
    for (long r = 0; r < rp; r++) w->lane[r] = 1.0f;
}

/* One graph; outputs and stats as in `gm_refer`. */
static void refer_graph(const Factors *x, const Refer *y, long i, const ReferOuts *outs, float *stats, double *entropies,
                        float *work) {
    long n = x->n, h = x->h, per_set = h * n / y->u, mp = across(x->m);
    long wp = wide_of(y), ap = filled(y->a), vp = filled(y->v);
    ReferWork w = cut_work(x, y, work, &(long){0});
    sum_graph(x, &w, i, stats, entropies);
    begin_refer(x, y, &w, i);
    for (long at = 0, rows; at < h * n; at += rows) {
        if (at % per_set == 0) begin_set(x, y, &w, i, at / per_set);
        rows = smaller(TILE, per_set - at % per_set);
        long rp = across(rows);
        begin_rows(x, y, &w, i, at, rows);
        if (y->conditional) weigh_given(x, y, &w, i, rows);
        else weigh(x, y, &w, i, rows, stats + (i * h * n + at) * STATS);
        for (long t = 0; t < x->m; t++)
            for (long q = 0; q < rp; q += LANES) V(w.n2 + t * rp + q) *= C(w.lane + q);
        for (long from = 0, to; from < rows; from = to) {
            to = head_end(x, at, from, rows);
            product(to - from, vp, x->m, w.n2 + from, 1, rp, w.n2_values + (at + from) / n * mp * vp, vp,
                    w.n2_outs + from * vp, vp, 0);
        }
        for (long r = 0; r < rows; r++) {
            long out = (i * n + (at + r) % n) * h + (at + r) / n;
            int real = is_real(x, &w, at + r);
            float *wide = w.outs + r * wp, scale = real ? w.lane[r] : 0.0f;
            for (long t = 0; t < wp; t += 8) V8(wide + t) *= scale;
            copy_row(outs->addresses + out * y->a, wide, y->a);
            copy_row(outs->e2 + out * y->e, wide + ap, y->e);
            if (!real) memset(w.n2_outs + r * vp, 0, vp * sizeof(float));
            copy_row(outs->n2 + out * y->v, w.n2_outs + r * vp, y->v);
        }
    }
}

/* stats (b, h, n, STATS); entropies of graph i are its 2 i and 2 i + 1, if there are any. */
void gm_refer(const Factors *x, const Refer *y, const ReferOuts *outs, float *stats, double *entropies, float *work,
              int threads) {
    long size = gm_refer_work(x, y);
    EACH_PART(i, x->b) {
        Place p = place_of(x, i);
        Factors factors = factors_at(x, p);
        Refer refer = refer_at(x, y, p);
        ReferOuts own = refer_outs_at(x, y, outs, p);
        double both[2] = {0}, *sums = entropies ? both : 0; /* threads would share lines of `entropies` */
        refer_graph(&factors, &refer, x->starts ? 0 : i, &own, stats + p.row * x->h * STATS, sums, own_slice(work, size));
        if (sums) memcpy(entropies + 2 * i, sums, sizeof both);
    }
}

/* <a, b> */
INLINE float dot(long width, const float *a, const float *b) {
    vw sum = SET(0.0f);
    for (long t = 0; t < width; t += LANES) sum += load(a + t, width - t) * load(b + t, width - t);
    return total(sum);
}

/* Gradients of a tile's outputs, both ways; `slope` becomes the gradient of the n2 weights less the mean
   gradient of the row's weights, which is <outputs, their gradients>. */
static void begin_grads(const Factors *x, const Refer *y, const ReferWork *w, const ReferOuts *outs,
                        const ReferOuts *d_outs, long i, long at, long rows) {
    long n = x->n, h = x->h, m = x->m, mp = across(m), rp = across(rows), wp = wide_of(y), ap = filled(y->a);
    long ep = filled(y->e), vp = filled(y->v);
    memset(w->outs, 0, rp * wp * sizeof(float));
    memset(w->n2_outs, 0, rp * vp * sizeof(float));
    float mean[TILE] = {0};
    for (long r = 0; r < rows; r++) {
        long out = (i * n + (at + r) % n) * h + (at + r) / n;
        if (!is_real(x, w, at + r)) continue;
        fill_row(w->outs + r * wp, d_outs->addresses + out * y->a, y->a, ap);
        fill_row(w->outs + r * wp + ap, d_outs->e2 + out * y->e, y->e, ep);
        fill_row(w->n2_outs + r * vp, d_outs->n2 + out * y->v, y->v, vp);
        mean[r] = dot(y->a, outs->addresses + out * y->a, w->outs + r * wp);
        mean[r] += dot(y->e, outs->e2 + out * y->e, w->outs + r * wp + ap);
        mean[r] += dot(y->v, outs->n2 + out * y->v, w->n2_outs + r * vp);
    }
    transpose(rp, wp, w->outs, wp, w->outs_turned, rp);
    for (long t = 0; t < m; t++)
        for (long q = 0; q < rp; q += LANES) V(w->n2_slope + t * rp + q) = -C(mean + q);
    for (long from = 0, to; from < rows; from = to) {
        to = head_end(x, at, from, rows);
        /* Columns of other heads are 0, so each head adds to its own. */
        float *one = w->rows;
        memset(one, 0, rp * vp * sizeof(float));
        memcpy(one + from * vp, w->n2_outs + from * vp, (to - from) * vp * sizeof(float));
        transpose(rp, vp, one, vp, w->n2_turned, rp);
        product(m, rp, y->v, w->n2_values + (at + from) / n * mp * vp, vp, 1, w->n2_turned, rp, w->n2_slope, rp, 1);
    }
}

/* The gradients of `count` weights of the pairs from `first` on, by what they collect. */
static void weights_back(const Factors *x, const Refer *y, const ReferWork *w, long i, long rp, long first, long count,
                         float *ds) {
    long m = x->m, wp = wide_of(y), ap = filled(y->a), ep = filled(y->e), given = first - dense_slots(x, y) * m;
    if (given < 0) {
        product(count, rp, wp, w->wide + first * wp, wp, 1, w->outs_turned, rp, ds, rp, 0);
        return;
    }
    product(count, rp, y->e, w->given + given * ep, ep, 1, w->outs_turned + ap * rp, rp, ds, rp, 0);
    for (long c = 0; c < count; c++) {
        long pair = given + c, target = x->given[(i * m + pair % m) * x->g + pair / m];
        const float *row = w->outs_turned + target * rp;
        for (long q = 0; target >= 0 && q < rp; q += LANES) V(ds + c * rp + q) += SET(x->given_scale) * C(row + q);
    }
}

/* From weights `s` and the gradients of logits `ds` of `count` pairs to gradients of keys, values and addresses,
   which are added up, and of queries. */
static void pairs_back(const Factors *x, const Refer *y, const ReferWork *w, long rows, long first, long count,
                       const float *s, const float *ds) {
    long rp = across(rows), dp = filled(y->d), wp = wide_of(y), ap = filled(y->a), ep = filled(y->e);
    long given = first - dense_slots(x, y) * x->m;
    if (given < 0) product(count, wp, rows, s, rp, 1, w->outs, wp, w->wide_grads + first * wp, wp, 1);
    else product(count, ep, rows, s, rp, 1, w->outs + ap, wp, w->given_grads + given * ep, ep, 1);
    product(count, dp, rows, ds, rp, 1, w->queries, dp, w->key_grads + first * dp, dp, 1);
    product(dp, rp, count, w->keys + first * dp, 1, dp, ds, rp, w->query_grads, rp, first > 0);
}

/* A tile's gradients by joint weights; n2 becomes the n2 weights, `slope` the gradients of sums of factors. */
static void joint_back(const Factors *x, const Refer *y, const ReferWork *w, const float *stats, long i, long rows) {
    long m = x->m, l = y->l, mp = across(m), rp = across(rows), dp = filled(y->d), dense = dense_slots(x, y);
    long slots = chunk_slots(m, l), targets = chunk_targets(m);
    float tops[TILE];
    for (long r = 0; r < rp; r++) { /* rows that fill up get no weights */
        tops[r] = r < rows ? stats[r * STATS + TOP] : 0.0f;
        w->lane[r] = r < rows ? logf(stats[r * STATS + INV]) : FILL;
    }
    for (long t = 0; t < m; t++)
        for (long q = 0; q < rp; q += LANES)
            V(w->bias + t * rp + q) = (C(w->bias + t * rp + q) - C(tops + q)) + C(w->lane + q);
    memset(w->n2, 0, mp * rp * sizeof(float));
    memset(w->slope, 0, mp * rp * sizeof(float));
    for (long slot = 0, many; slot < l; slot += many)
        for (long from = 0; from < m; from += targets) {
            many = smaller(slots, (slot < dense ? dense : l) - slot);
            long part = smaller(targets, m - from), first = slot * m + from, count = many * part;
            float *s = w->weights, *ds = w->delta;
            product(count, rp, y->d, w->keys + first * dp, dp, 1, w->turned, rp, s, rp, 0);
            weights_back(x, y, w, i, rp, first, count, ds);
            for (long o = 0; o < many; o++)
                for (long t = 0; t < part; t++) {
                    long row = (o * part + t) * rp, under = (from + t) * rp;
                    vw own = bias_of(w, (slot + o) * m + from + t);
                    for (long q = 0; q < rp; q += LANES) {
                        vw weight = exponential(C(s + row + q) + C(w->bias + under + q) + own);
                        vw delta = weight * (C(ds + row + q) + C(w->n2_slope + under + q));
                        V(s + row + q) = weight;
                        V(ds + row + q) = delta;
                        V(w->n2 + under + q) += weight;
                        V(w->slope + under + q) += delta;
                    }
                }
            pairs_back(x, y, w, rows, first, count, s, ds);
        }
}

/* The same by conditional weights p(n2) p(e2 | n2). */
static void conditional_back(const Factors *x, const Refer *y, const ReferWork *w, long i, long rows) {
    long m = x->m, l = y->l, c = l * m, mp = across(m), rp = across(rows), dp = filled(y->d);
    long dense = dense_slots(x, y) * m;
    n2_softmax(w, m, rp);
    memset(w->slope, 0, mp * rp * sizeof(float));
    product(c, rp, y->d, w->keys, dp, 1, w->turned, rp, w->weights, rp, 0);
    weights_back(x, y, w, i, rp, 0, dense, w->delta);
    if (x->g) weights_back(x, y, w, i, rp, dense, c - dense, w->delta + dense * rp);
    for (long t = 0; t < m; t++)
        for (long q = 0; q < rp; q += LANES) {
            float *s = w->weights + t * rp + q, *ds = w->delta + t * rp + q;
            vw n2 = C(w->n2 + t * rp + q), mean = SET(0.0f);
            slot_softmax(w, l, m, t, m * rp, s);
            for (long slot = 0; slot < l; slot++) mean += C(s + slot * m * rp) * C(ds + slot * m * rp);
            V(w->slope + t * rp + q) = n2 * (mean + C(w->n2_slope + t * rp + q));
            for (long slot = 0; slot < l; slot++) {
                vw weight = n2 * C(s + slot * m * rp);
                V(s + slot * m * rp) = weight;
                V(ds + slot * m * rp) = weight * (C(ds + slot * m * rp) - mean);
            }
        }
    pairs_back(x, y, w, rows, 0, dense, w->weights, w->delta);
    if (x->g) pairs_back(x, y, w, rows, dense, c - dense, w->weights + dense * rp, w->delta + dense * rp);
}

/* Gradients of a softmax add up to 0. What is left of rounding, as the mean was taken from outputs, is taken off:
   logarithms and 1 / probabilities would magnify it. */
static void centre(const ReferWork *w, long m, long rp) {
    for (long q = 0; q < rp; q += LANES) {
        vw left = SET(0.0f);
        for (long t = 0; t < m; t++) left += C(w->slope + t * rp + q);
        for (long t = 0; t < m; t++) V(w->slope + t * rp + q) -= left * C(w->n2 + t * rp + q);
    }
}

/* One tile; gradients of sums of factors replace these. */
static void tile_back(const Factors *x, const Refer *y, const ReferGrads *grads, const ReferWork *w,
                      const float *stats, long i, long at, long rows) {
    long m = x->m, mp = across(m), rp = across(rows), dp = filled(y->d), vp = filled(y->v);
    if (y->conditional) conditional_back(x, y, w, i, rows);
    else joint_back(x, y, w, stats, i, rows);
    centre(w, m, rp);
    transpose(dp, rp, w->query_grads, rp, w->queries, dp);
    for (long r = 0; r < rows; r++)
        copy_row(ROW(grads->queries, i, (at + r) / x->n, (at + r) % x->n), w->queries + r * dp, y->d);
    for (long from = 0, to; from < rows; from = to) {
        to = head_end(x, at, from, rows);
        product(m, vp, to - from, w->n2 + from, rp, 1, w->n2_outs + from * vp, vp,
                w->n2_value_grads + (at + from) / x->n * mp * vp, vp, 1);
    }
    transpose(mp, rp, w->slope, rp, w->rows, mp);
    memcpy(w->sums + at * mp, w->rows, rows * mp * sizeof(float));
}

/* From the gradients of sums of factors to those of what they are made of; `add` as in `mix_back`. */
static void factors_back(const Factors *x, const FactorGrads *grads, ReferWork *w, const float *stats, long i, int add) {
    long tile = tile_of(x), n = x->n, mp = across(x->m);
    for (long from = 0; from < n; from += tile) {
        long s = smaller(tile, n - from);
        begin_tile(x, &w->factors, i, from, s);
        if (x->e1_weights.at) mix_addresses(x, &w->factors, i, from, s, w->edge);
        for (long head = 0; head < x->h; head++) {
            if (x->queries.at) node_factors(x, &w->factors, i, head, from, s, w->node);
            for (long j = 0; j < s; j++) {
                long row = head * n + from + j;
                begin_source(x, &w->factors, j);
                back_row(x, &w->factors, grads, i, head, from + j, w->sums + row * mp,
                         stats + (i * x->h * n + row) * STATS, 0, w->edge + (head * s + j) * mp,
                         w->node + j * mp);
            }
            if (x->queries.at) node_back(x, &w->factors, grads->queries, i, head, from, s, w->node, from > 0);
        }
        if (x->e1_weights.at) mix_back(x, &w->factors, grads, i, from, s, w->edge, add);
    }
    end_graph(x, &w->factors, grads, i);
}

static void end_set(const Factors *x, const Refer *y, const ReferGrads *grads, const ReferWork *w, long i, long set) {
    long m = x->m, l = y->l, wp = wide_of(y), ap = filled(y->a), dp = filled(y->d), ep = filled(y->e);
    long dense = dense_slots(x, y);
    float *values = ROW(grads->values, i, set, 0);
    node_major(x, y, w->key_grads, dp, 0, l, y->d, ROW(grads->keys, i, set, 0), grads->keys.node);
    node_major(x, y, w->wide_grads + ap, wp, 0, dense, y->e, values, grads->values.node);
    node_major(x, y, w->given_grads, ep, dense, l, y->e, values, grads->values.node);
    memset(w->key_grads, 0, l * m * dp * sizeof(float));
    for (long row = 0; row < dense * m; row++) memset(w->wide_grads + row * wp + ap, 0, ep * sizeof(float));
}

static void refer_graph_back(const Factors *x, const Refer *y, long i, const ReferOuts *outs, const ReferOuts *d_outs,
                             float *stats, const FactorGrads *factor_grads, const ReferGrads *grads, float *work) {
    long n = x->n, h = x->h, per_set = h * n / y->u, m = x->m, mp = across(m);
    long wp = wide_of(y), vp = filled(y->v), dense = dense_slots(x, y), made = dense - x->empty;
    ReferWork w = cut_work(x, y, work, &(long){0});
    sum_graph(x, &w, i, 0, 0);
    begin_refer(x, y, &w, i);
    memset(w.key_grads, 0, y->l * m * filled(y->d) * sizeof(float));
    memset(w.wide_grads, 0, dense * m * wp * sizeof(float));
    memset(w.given_grads, 0, x->g * m * filled(y->e) * sizeof(float));
    memset(w.n2_value_grads, 0, h * mp * vp * sizeof(float));
    for (long at = 0, rows; at < h * n; at += rows) {
        if (at % per_set == 0) begin_set(x, y, &w, i, at / per_set);
        rows = smaller(TILE, per_set - at % per_set);
        begin_rows(x, y, &w, i, at, rows);
        begin_grads(x, y, &w, outs, d_outs, i, at, rows);
        tile_back(x, y, grads, &w, stats + (i * h * n + at) * STATS, i, at, rows);
        if ((at + rows) % per_set == 0) end_set(x, y, grads, &w, i, at / per_set);
    }
    node_major(x, y, w.wide_grads, wp, 0, made, y->a, grads->addresses + i * m * made * y->a, made * y->a);
    for (long head = 0; head < h; head++)
        scatter(w.n2_value_grads + head * mp * vp, vp, m, y->v, grads->n2_values, i, head, 0);
    factors_back(x, factor_grads, &w, stats, i, grads->addresses == factor_grads->addresses); /* one tensor for both */
}

void gm_refer_backward(const Factors *x, const Refer *y, const ReferOuts *outs, const ReferOuts *d_outs,
                       float *stats, const FactorGrads *factor_grads, const ReferGrads *grads, float *work,
                       int threads) {
    long size = gm_refer_work(x, y);
    EACH_PART(i, x->b) {
        Place p = place_of(x, i);
        Factors factors = factors_at(x, p);
        Refer refer = refer_at(x, y, p);
        ReferOuts own = refer_outs_at(x, y, outs, p), above = refer_outs_at(x, y, d_outs, p);
        FactorGrads slopes = factor_grads_at(x, factor_grads, p);
        ReferGrads rest = refer_grads_at(x, y, grads, p);
        refer_graph_back(&factors, &refer, x->starts ? 0 : i, &own, &above, stats + p.row * x->h * STATS, &slopes, &rest,
                         own_slice(work, size));
    }
}
