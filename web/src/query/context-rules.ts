import type { RecordedRun } from './run-data';

export type Rule = 'limit' | 'trim' | 'duplicate' | 'per_document' | 'budget';
/** A ranked passage that was not read, and the rule that dropped it. */
export type Dropped = {
  passageId: string;
  chunkId: string;
  documentId: string;
  rank: number;
  rule: Rule;
  strength: number | null;
  tokens: number | null;
};
export type Packing = {
  tokens: Map<string, number>;
  budget: number;
  limit: number;
  perDocument: number | null;
  /** The least strength that is read. */
  needed: number;
  dropped: Dropped[];
};

type AnswerProfile = { trim: number; context_tokens: number };

/** What the rules of `retrieval/context_packing.py` did, from the numbers of the run. */
export function explainPacking(run: RecordedRun): Packing | null {
  const { record, request } = run;
  if (record === null) return null;
  const answer = record.profile.answer as unknown as AnswerProfile;
  const keep = (record.profile.rerank as { keep?: number }).keep ?? 10;
  const limit = Math.min(request?.k ?? 10, keep);
  const perDocument =
    (record.profile.fusion as { per_document?: number | null }).per_document ?? null;
  const background = run.trace?.rerank_background ?? 0;
  const read = new Set(run.passages.map((passage) => passage.parent_id));
  const folded = new Set(run.passages.flatMap((passage) => passage.duplicates ?? []));
  const tokens = new Map(record.parents.map((parent) => [parent.id, parent.tokens]));
  const ranked = run.candidates
    .filter((candidate) => candidate.parent_score !== undefined)
    .toSorted(
      (left, right) =>
        (right.parent_score as number) - (left.parent_score as number) ||
        (left.parent_id < right.parent_id ? -1 : 1),
    );
  const strengthOf = (candidate: (typeof ranked)[0]) =>
    typeof candidate.rerank_score === 'number' ? candidate.rerank_score - background : null;
  const strengths = ranked.slice(0, limit).flatMap((candidate) => strengthOf(candidate) ?? []);
  const highest = Math.max(0, ...strengths);
  const needed = answer.trim * highest;
  const dropped: Dropped[] = [];
  const perDocumentCount = new Map<string, number>();
  let place = 0;
  for (const [index, candidate] of ranked.entries()) {
    const { parent_id: passageId, document_id: documentId } = candidate;
    const strength = strengthOf(candidate);
    const isFolded = !read.has(passageId) && folded.has(documentId);
    const ofDocument = (perDocumentCount.get(documentId) ?? 0) + (isFolded ? 0 : 1);
    perDocumentCount.set(documentId, ofDocument);
    const isOverDocument = perDocument !== null && ofDocument > perDocument;
    if (!isFolded && !isOverDocument) place += 1;
    if (read.has(passageId)) continue;
    const rule: Rule = isFolded
      ? 'duplicate'
      : isOverDocument
        ? 'per_document'
        : place > limit
          ? 'limit'
          : strength !== null && strength < needed
            ? 'trim'
            : 'budget';
    dropped.push({
      passageId,
      chunkId: candidate.chunk_id,
      documentId,
      rank: index + 1,
      rule,
      strength,
      tokens: tokens.get(passageId) ?? null,
    });
  }
  return { tokens, budget: answer.context_tokens, limit, perDocument, needed, dropped };
}
