/* What nodes receive of their input edges: sums over slots of silu(seen[target] + W edge), forward and backward. Slots
   whose target is below 0 hold no edge. */

#include "common.h"

/* Widths x and e are multiples of 8. */
typedef struct {
    long rows, k, x, e;
    const float *seen, *edges, *weight; /* rows x, rows k e, x e */
    const long *targets;                /* rows k */
} Messages;

/* Rows that a thread takes at a time, and edges that are worked on together. */
#define SOME 16

/* Numbers of `work` per thread. */
long gm_messages_work(const Messages *y) { return TILE * (2 * y->x + 2 * y->e) + 2 * y->x * y->e + 128; }

typedef struct {
    float *hidden, *delta, *edges, *d_edges; /* TILE x, TILE x, TILE e, TILE e */
    float *turned;                           /* e x */
    long count, row[TILE], slot[TILE];
} Gathered;

static Gathered cut(const Messages *y, float *at) {
    return (Gathered){
        .hidden = take(&at, TILE * y->x),
        .delta = take(&at, TILE * y->x),
        .edges = take(&at, TILE * y->e),
        .d_edges = take(&at, TILE * y->e),
        .turned = take(&at, y->x * y->e),
    };
}

/* The next edges of rows before `to`, from `row` and `slot` on; these move on. Returns whether there are any. */
static int gather_edges(const Messages *y, Gathered *g, long *row, long *slot, long to) {
    for (g->count = 0; *row < to; ++*row, *slot = 0)
        for (; *slot < y->k; ++*slot) {
            long at = *row * y->k + *slot;
            if (y->targets[at] < 0) continue;
            if (g->count == TILE) return 1;
            g->row[g->count] = *row, g->slot[g->count] = at;
            copy_row(g->edges + g->count * y->e, y->edges + at * y->e, y->e);
            g->count++;
        }
    return g->count > 0;
}

static void hidden_of(const Messages *y, const Gathered *g) {
    for (long c = 0; c < g->count; c++)
        copy_row(g->hidden + c * y->x, y->seen + y->targets[g->slot[c]] * y->x, y->x);
    product(g->count, y->x, y->e, g->edges, y->e, 1, g->turned, y->x, g->hidden, y->x, 1);
}

/* sums (rows, x) */
void gm_messages(const Messages *y, float *sums, float *work, int threads) {
    long x = y->x, size = gm_messages_work(y);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long from = 0; from < y->rows; from += SOME) {
        Gathered g = cut(y, own_slice(work, size));
        long to = smaller(from + SOME, y->rows), row = from, slot = 0;
        transpose(x, y->e, y->weight, y->e, g.turned, x); /* small beside the edges of SOME rows */
        memset(sums + from * x, 0, (to - from) * x * sizeof(float));
        while (gather_edges(y, &g, &row, &slot, to)) {
            hidden_of(y, &g);
            for (long c = 0; c < g.count; c++)
                for (long t = 0; t < x; t += LANES) {
                    float *out = sums + g.row[c] * x + t;
                    vw h = load(g.hidden + c * x + t, x - t);
                    store(out, x - t, load(out, x - t) + h * sigmoid(h));
                }
        }
    }
}

/* Gradients of `seen` and of the weight are sets of (rows, x) and (x, e); that of edges comes zeroed: slots without an
   edge are not written. */
void gm_messages_backward(const Messages *y, const float *d_sums, float *d_seen, float *d_edges, float *d_weight,
                          float *work, int threads) {
    long x = y->x, e = y->e, size = gm_messages_work(y);
#pragma omp parallel num_threads(threads)
    {
        float *own_seen = own_set(y->rows * x, d_seen, threads), *own_weight = own_set(x * e, d_weight, threads);
        Gathered g = cut(y, own_slice(work, size));
        transpose(x, e, y->weight, e, g.turned, x);
#pragma omp for schedule(static)
        for (long from = 0; from < y->rows; from += SOME) {
            long to = smaller(from + SOME, y->rows), row = from, slot = 0;
            while (gather_edges(y, &g, &row, &slot, to)) {
                hidden_of(y, &g);
                for (long c = 0; c < g.count; c++) {
                    float *to_seen = own_seen + y->targets[g.slot[c]] * x;
                    for (long t = 0; t < x; t += LANES) {
                        vw h = load(g.hidden + c * x + t, x - t), s = sigmoid(h);
                        vw slope = load(d_sums + g.row[c] * x + t, x - t) * s * (SET(1.0f) + h * (SET(1.0f) - s));
                        store(g.delta + c * x + t, x - t, slope);
                        store(to_seen + t, x - t, load(to_seen + t, x - t) + slope);
                    }
                }
                product(g.count, e, x, g.delta, x, 1, y->weight, e, g.d_edges, e, 0);
                product(x, e, g.count, g.delta, 1, x, g.edges, e, own_weight, e, 1);
                for (long c = 0; c < g.count; c++) copy_row(d_edges + g.slot[c] * e, g.d_edges + c * e, e);
            }
        }
    }
    join_sets(y->rows * x, d_seen, threads);
    join_sets(x * e, d_weight, threads);
}
