/** The tabs of a run, in the order of the keys 1 to 6. */
export const RUN_TABS = ['answer', 'retrieval', 'fusion', 'context', 'judge', 'trace'] as const;
export type RunTab = (typeof RUN_TABS)[number];
