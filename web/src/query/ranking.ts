/** From fused chunks to ranked passages: `retrieval/parent_expansion.py` and `reranking.py`. */
import { compareIds, type FusedCandidate, zScores } from './fusion';

export type RerankProfile = {
  weight: number;
  named_factor: number;
  parents: number;
  expand: 'max' | 'sum';
};

/** Recorded scores of the reranker by passage. `order` is what was added, if it differs. */
export type RerankInput = {
  role: 'added' | 'replaces' | null;
  scores: ReadonlyMap<string, number>;
  order: ReadonlyMap<string, number>;
  namesDocument: boolean;
};

export type RankedPassage = {
  id: string;
  score: number;
  best: FusedCandidate;
  /** Addends of the score, those of the best chunk first. */
  addends: Record<string, number>;
};

/** A passage has the score of its best chunk, or the sum of what each adds to the lowest. */
export function expandToPassages(
  candidates: readonly FusedCandidate[],
  parentOf: (chunkId: string) => string,
  expand: 'max' | 'sum',
): RankedPassage[] {
  const lowest = Math.min(...candidates.map((candidate) => candidate.score));
  const families = Map.groupBy(candidates, (candidate) => parentOf(candidate.id));
  return [...families]
    .map(([id, children]) => {
      const best = children.reduce((left, right) =>
        right.score > left.score || (right.score === left.score && right.id > left.id)
          ? right
          : left,
      );
      const addends: Record<string, number> =
        expand === 'max' ? best.addends : sumChildren(children, lowest);
      const score =
        expand === 'max'
          ? best.score
          : children.reduce((total, child) => total + (child.score - lowest), 0);
      return { id, score, best, addends };
    })
    .sort(compareRanked);
}

function sumChildren(children: readonly FusedCandidate[], lowest: number): Record<string, number> {
  const sums: Record<string, number> = { above_lowest: -lowest * children.length };
  for (const child of children) {
    for (const [name, value] of Object.entries(child.addends)) {
      sums[name] = (sums[name] ?? 0) + value;
    }
  }
  return sums;
}

/** Add the z-scores of the reranker, or take its order. Folding of duplicates needs texts. */
export function rerank(
  passages: readonly RankedPassage[],
  input: RerankInput,
  profile: RerankProfile,
): RankedPassage[] {
  const offered = passages.slice(0, profile.parents);
  const scored = offered.filter((passage) => input.scores.has(passage.id));
  if (input.role === null || scored.length === 0) return [...passages];
  const added = input.order.size ? input.order : input.scores;
  if (input.role === 'replaces') {
    const lowest = Math.min(...scored.map((passage) => added.get(passage.id) as number));
    return replaceScores(scored, passages, input.scores, lowest);
  }
  const withOrder = offered.filter((passage) => added.has(passage.id));
  const values = zScores(withOrder.map((passage) => added.get(passage.id) as number));
  const zById = new Map(withOrder.map((passage, index) => [passage.id, values[index] as number]));
  // A passage must gain nothing from lacking a score.
  const lowest = Math.min(...values);
  const weight = profile.weight * (input.namesDocument ? profile.named_factor : 1);
  return passages
    .map((passage) => {
      const addend = weight * (zById.get(passage.id) ?? lowest);
      return {
        ...passage,
        score: passage.score + addend,
        addends: { ...passage.addends, rerank: addend },
      };
    })
    .sort(compareRanked);
}

function replaceScores(
  scored: readonly RankedPassage[],
  passages: readonly RankedPassage[],
  scores: ReadonlyMap<string, number>,
  lowest: number,
): RankedPassage[] {
  const unscored = passages.filter((passage) => !scored.includes(passage));
  const withScore = (passage: RankedPassage, score: number): RankedPassage => ({
    ...passage,
    score,
    addends: { rerank: score },
  });
  return [
    ...scored
      .map((passage) => withScore(passage, scores.get(passage.id) as number))
      .sort(compareRanked),
    ...unscored.map((passage) =>
      withScore(passage, lowest - ((unscored[0] as RankedPassage).score - passage.score)),
    ),
  ];
}

function compareRanked(left: RankedPassage, right: RankedPassage): number {
  return right.score - left.score || compareIds(left.id, right.id);
}
