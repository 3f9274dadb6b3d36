import { expect, test } from 'vitest';
import { parseEdits } from './profile-editor';
import { combine, fileContent, isFileOnly, type Profile, profileSection } from './profiles';
import { allFields, type JsonSchema } from './schema';
import { fromPosition, toPosition } from './schema-field';

const schema: JsonSchema = {
  properties: {
    name: { type: 'string' },
    profiles: { properties: { fusion: { type: 'string', default: 'default' } } },
    fusion: {
      properties: {
        rrf_k: { type: 'integer', minimum: 1, maximum: 1000, default: 60 },
        hop: { type: 'number', minimum: 0, maximum: 100, default: 0 },
      },
    },
    answer: {
      properties: { prompt: { properties: { role: { type: 'string', default: null } } } },
    },
  },
};
const section = profileSection(schema);
const rrf = { type: 'fusion', name: 'rrf', profiles: {}, sha256: '' } as const;
const catalog: Profile[] = [{ ...rrf, settings: { fusion: { rrf_k: 20, hop: 0 } } }];

test("a workflow's file names its profiles and holds what differs from theirs", () => {
  const values = { fusion: { rrf_k: 20, hop: 3 }, answer: { prompt: { role: null } } };
  expect(fileContent(section, values, { fusion: 'rrf', judge: 'default' }, catalog)).toEqual({
    profiles: { fusion: 'rrf' },
    fusion: { hop: 3 },
  });
});

test('a chosen profile replaces its settings and no others', () => {
  const settings = { fusion: { rrf_k: 60, hop: 1 }, judge: { retry: true } };
  expect(combine(settings, catalog)).toEqual({
    fusion: { rrf_k: 20, hop: 0 },
    judge: { retry: true },
  });
});

test('prompts and redaction come from files alone', () => {
  const fields = allFields(section);
  expect(fields.filter(isFileOnly).map((field) => field.key)).toEqual(['answer.prompt.role']);
});

test('edits of an address that are no object are none', () => {
  expect(parseEdits('{"fusion":{"hop":2}}')).toEqual({ fusion: { hop: 2 } });
  for (const text of ['[1]', 'null', '{', '"x"', undefined]) expect(parseEdits(text)).toEqual({});
});

test('a slider reaches both bounds, and its values are steps', () => {
  for (const [min, max, step] of [
    [0, 1, 0.01],
    [1, 1000, 1],
    [100, 200_000, 1],
  ] as const) {
    expect(fromPosition(0, min, max, step)).toBe(min);
    expect(fromPosition(200, min, max, step)).toBe(max);
    expect(toPosition(max, min, max)).toBe(200);
  }
  expect(fromPosition(toPosition(0.37, 0, 1), 0, 1, 0.01)).toBe(0.37);
  expect(fromPosition(100, 100, 200_000, 1)).toBeLessThan(2000);
});
