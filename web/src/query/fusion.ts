/**
 * The fusion of `retrieval/ranking/fusion.py` and the sums behind it, in the browser.
 *
 * `tests/golden/fusion_vectors.json` holds both to the same results: change them together.
 */

export const CHANNELS = ['lexical', 'semantic', 'graph'] as const;
export type Channel = (typeof CHANNELS)[number];
/** Terms beside the channels, in the order in which they are added. */
export const TERMS = ['freshness', 'metadata', 'entity_overlap', 'hop', 'edge_type'] as const;

/** Candidates below which reciprocal ranks are combined. */
const MIN_CANDIDATES = 20;
/** The weight `bridged` beside reciprocal ranks. */
const RRF_BRIDGED = 1;

export type FusionProfile = Record<Channel, number> & {
  method: 'zscore' | 'rrf';
  rrf_k: number;
  bigram: number;
  full_coverage: number;
  unnamed_semantic: number;
  unnamed_graph: number;
  background: number;
  named: number;
  bridged: number;
  title: number;
  freshness: number;
  metadata: number;
  entity_overlap: number;
  hop: number;
  edge_types: Record<string, number>;
};

type Scores = ReadonlyMap<string, number>;
export type Place = { rank: number; score: number };

/** What entered the fusion: `hits` are the channels' scores by chunk. */
export type FusionInput = {
  hits: Partial<Record<Channel, Scores>>;
  complete: ReadonlySet<string>;
  pairScores: Scores;
  coverage: number;
  backgrounds: Scores;
  named: Scores;
  bridged: Scores;
  titles: Scores;
  weightFactors: Partial<Record<Channel, number>>;
  terms: Partial<Record<(typeof TERMS)[number], Scores>>;
};

export type FusedCandidate = {
  id: string;
  score: number;
  places: Partial<Record<Channel, Place>>;
  /** Addends of the score by name, each already multiplied by its weight. */
  addends: Record<string, number>;
};
export type Fusion = { method: 'zscore' | 'rrf'; candidates: FusedCandidate[] };

type Places = Map<Channel, Map<string, Place>>;
type Addends = Map<string, number[]>;

/** Fuse by the sum of z-scores or by weighted reciprocal ranks; best first, ties by id. */
export function fuse(input: FusionInput, profile: FusionProfile): Fusion {
  const places: Places = new Map();
  for (const channel of CHANNELS) {
    const scores = input.hits[channel];
    if (scores?.size) places.set(channel, rankHits(scores));
  }
  const found = [...places.values()].flatMap((ranks) => [...ranks.keys()]);
  const ids = [...new Set([...found, ...input.named.keys(), ...input.bridged.keys()])].sort(
    compareIds,
  );
  const isStandardized = profile.method === 'zscore' && ids.length >= MIN_CANDIDATES;
  const standardized = isStandardized ? sumZScores(ids, places, input, profile) : null;
  const method = standardized ? 'zscore' : 'rrf';
  const addends = standardized ?? sumReciprocalRanks(ids, places, input, profile);
  addTerms(addends, ids, method, input, profile);
  return { method, candidates: sortCandidates(ids, addends, places) };
}

function rankHits(scores: Scores): Map<string, Place> {
  const ordered = [...scores].sort(
    ([left, leftScore], [right, rightScore]) => rightScore - leftScore || compareIds(left, right),
  );
  return new Map(ordered.map(([id, score], index) => [id, { rank: index + 1, score }]));
}

/** `weight × (score − mean) / deviation` by channel; null when every deviation is zero. */
function sumZScores(
  ids: string[],
  places: Places,
  input: FusionInput,
  profile: FusionProfile,
): Addends | null {
  const addends: Addends = new Map();
  let hasDeviation = false;
  for (const [channel, ranks] of places) {
    const isLessBackground =
      channel === 'semantic' && input.backgrounds.size > 0 && input.named.size === 0;
    const scores = new Map(
      [...ranks].map(([id, place]) => [
        id,
        isLessBackground
          ? place.score - profile.background * (input.backgrounds.get(id) ?? 0)
          : place.score,
      ]),
    );
    // A chunk that the channel lacks scores at most its lowest hit, or 0 if it returned all.
    const missing = input.complete.has(channel) ? 0 : Math.min(...scores.values());
    let values = ids.map((id) => scores.get(id) ?? missing);
    if (channel === 'lexical' && profile.bigram && input.pairScores.size > 0) {
      values = values.map(
        (value, index) =>
          value + profile.bigram * (input.pairScores.get(ids[index] as string) ?? 0),
      );
    }
    const weight = channelWeight(channel, input, profile);
    hasDeviation ||= standardDeviation(values) !== 0;
    addends.set(
      channel,
      zScores(values).map((z) => weight * z),
    );
  }
  return hasDeviation ? addends : null;
}

/** A share of the sum that the channels with hits can reach (Cormack, Clarke, Büttcher 2009). */
function sumReciprocalRanks(
  ids: string[],
  places: Places,
  input: FusionInput,
  profile: FusionProfile,
): Addends {
  const weights = new Map(
    [...places.keys()].map((channel) => [channel, channelWeight(channel, input, profile)]),
  );
  let most = 0;
  for (const weight of weights.values()) most += weight / (profile.rrf_k + 1);
  const addends: Addends = new Map();
  for (const [channel, ranks] of places) {
    const weight = weights.get(channel) as number;
    addends.set(
      channel,
      ids.map((id) => {
        const place = ranks.get(id);
        return place ? weight / (profile.rrf_k + place.rank) / (most || 1) : 0;
      }),
    );
  }
  return addends;
}

export function channelWeight(
  channel: Channel,
  input: FusionInput,
  profile: FusionProfile,
): number {
  const weight = profile[channel] * (input.weightFactors[channel] ?? 1);
  const isNamed = input.named.size > 0;
  if (channel === 'semantic') return isNamed ? weight : weight * profile.unnamed_semantic;
  if (channel === 'graph') return isNamed ? weight : weight * profile.unnamed_graph;
  return channel === 'lexical' ? weight * wordEvidence(input, profile) : weight;
}

/** How much the words of the question count, from 0 to 1. */
function wordEvidence(input: FusionInput, profile: FusionProfile): number {
  return profile.full_coverage ? Math.min(1, input.coverage / profile.full_coverage) : 1;
}

function addTerms(
  addends: Addends,
  ids: string[],
  method: 'zscore' | 'rrf',
  input: FusionInput,
  profile: FusionProfile,
): void {
  const isRrf = method === 'rrf';
  const terms: [string, Scores | undefined, number][] = [
    ['named', input.named, profile.named],
    ['bridged', input.bridged, isRrf ? RRF_BRIDGED : profile.bridged],
    ['title', input.titles, isRrf ? 0 : profile.title * wordEvidence(input, profile)],
    ...TERMS.map((name): [string, Scores | undefined, number] => [
      name,
      input.terms[name],
      termWeight(name, profile),
    ]),
  ];
  for (const [name, scores, weight] of terms) {
    if (!scores?.size || (isTerm(name) && !weight)) continue;
    addends.set(
      name,
      ids.map((id) => weight * (scores.get(id) ?? 0)),
    );
  }
}

function isTerm(name: string): name is (typeof TERMS)[number] {
  return (TERMS as readonly string[]).includes(name);
}

function termWeight(name: (typeof TERMS)[number], profile: FusionProfile): number {
  if (name !== 'edge_type') return profile[name];
  // The term is the weight of a type.
  return Object.values(profile.edge_types).some(Boolean) ? 1 : 0;
}

function sortCandidates(ids: string[], addends: Addends, places: Places): FusedCandidate[] {
  return ids
    .map((id, index) => {
      const own = [...addends].map(([name, values]) => [name, values[index] as number] as const);
      const byChannel = [...places]
        .filter(([, ranks]) => ranks.has(id))
        .map(([channel, ranks]) => [channel, ranks.get(id)] as const);
      return {
        id,
        score: own.reduce((total, [, value]) => total + value, 0),
        places: Object.fromEntries(byChannel),
        addends: Object.fromEntries(own),
      };
    })
    .sort((left, right) => right.score - left.score || compareIds(left.id, right.id));
}

export function compareIds(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

/** (value − mean) / deviation; zeros when all values are equal. */
export function zScores(values: readonly number[]): number[] {
  const deviation = standardDeviation(values);
  if (!(deviation > 1e-12)) return values.map(() => 0);
  const mean = pairwiseSum(values) / values.length;
  return values.map((value) => (value - mean) / deviation);
}

function standardDeviation(values: readonly number[]): number {
  const mean = pairwiseSum(values) / values.length;
  return Math.sqrt(pairwiseSum(values.map((value) => (value - mean) ** 2)) / values.length);
}

/** Sum in the order of NumPy, so that scores are equal to the last bit and ties stay ties. */
export function pairwiseSum(values: readonly number[], from = 0, to = values.length): number {
  const at = (index: number) => values[index] as number;
  const n = to - from;
  if (n > 128) {
    const half = Math.floor(n / 2);
    const middle = from + half - (half % 8);
    return pairwiseSum(values, from, middle) + pairwiseSum(values, middle, to);
  }
  let total = 0;
  let index = from;
  if (n >= 8) {
    const lanes = [0, 1, 2, 3, 4, 5, 6, 7].map((lane) => at(from + lane));
    for (index = from + 8; index + 8 <= to; index += 8) {
      for (let lane = 0; lane < 8; lane += 1)
        lanes[lane] = (lanes[lane] as number) + at(index + lane);
    }
    const [a, b, c, d, e, f, g, h] = lanes as [
      number,
      number,
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    total = a + b + (c + d) + (e + f + (g + h));
  }
  for (; index < to; index += 1) total += at(index);
  return total;
}
