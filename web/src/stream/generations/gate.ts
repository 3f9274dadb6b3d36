/** The bounds of a promotion that the screen shows, with the defaults of the API. */
export const GATE = {
  min_queries: 20,
  min_judged_queries: 10,
  min_overlap: 0,
  max_refusals: 0.05,
  max_latency_ratio: 2,
};

export type Bound = keyof typeof GATE;
export const BOUNDS = Object.keys(GATE) as Bound[];
