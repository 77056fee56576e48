/* Scores and sums over the candidates of every node, whose keys and values are rows of a table.

   Letters: i nodes, h heads, c candidates, d the width of a head. Queries and what is made of weights are (i, h, d),
   the table is (m, h, d), scores and weights are (i, h, c), rows (i, c) say where candidates stand in the table. Widths
   are multiples of 8. Threads share out heads, so that no two of them add to the same number. */

#include "common.h"

#define EACH_HEAD                                                 \
    _Pragma("omp parallel num_threads(threads)")                  \
    for (long team = omp_get_num_threads(), me = omp_get_thread_num(), low = h * me / team, high = h * (me + 1) / team, \
              i = 0; i < nodes; i++)                              \
        for (long head = low; head < high; head++)

INLINE float dot(long d, const float *a, const float *b) {
    v8 sum = SET8(0.0f);
    for (long t = 0; t < d; t += 8) sum += C8(a + t) * C8(b + t);
    return total8(sum);
}

INLINE void add(long d, float *to, float times, const float *from) {
    v8 x = SET8(times);
    for (long t = 0; t < d; t += 8) V8(to + t) += x * C8(from + t);
}

/* dots[i, h, c] = left[i, h] . table[rows[i, c], h] */
void gm_gathered_dots(long nodes, long h, long c, long d, const float *left, const float *table, const long *rows,
                      float *dots, int threads) {
    EACH_HEAD {
        const float *own = left + (i * h + head) * d;
        float *to = dots + (i * h + head) * c;
        for (long j = 0; j < c; j++) to[j] = dot(d, own, table + (rows[i * c + j] * h + head) * d);
    }
}

/* sums[i, h] = sum_c weights[i, h, c] table[rows[i, c], h] */
void gm_gathered_sums(long nodes, long h, long c, long d, const float *weights, const float *table, const long *rows,
                      float *sums, int threads) {
    EACH_HEAD {
        const float *weight = weights + (i * h + head) * c;
        float *to = sums + (i * h + head) * d;
        memset(to, 0, d * sizeof(float));
        for (long j = 0; j < c; j++) add(d, to, weight[j], table + (rows[i * c + j] * h + head) * d);
    }
}

/* table[rows[i, c], h] += weights[i, h, c] left[i, h]; the caller gives zeros. Unused candidates have weight 0. */
void gm_scattered_sums(long nodes, long h, long c, long d, const float *weights, const float *left, const long *rows,
                       float *table, int threads) {
    EACH_HEAD {
        const float *weight = weights + (i * h + head) * c, *own = left + (i * h + head) * d;
        for (long j = 0; j < c; j++)
            if (weight[j] != 0.0f) add(d, table + (rows[i * c + j] * h + head) * d, weight[j], own);
    }
}
