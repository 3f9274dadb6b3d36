import { expect, test } from 'vitest';
import { diffConfig, type Generation } from './config-diff';

const withConfig = (config: unknown) => ({ config }) as Generation;

test('only settings that differ are listed, without derived fingerprints', () => {
  const live = withConfig({
    chunk: { child_tokens: 330, overlap: 0, fingerprint: 'a' },
    hnsw: { m: 16 },
  });
  const own = withConfig({
    chunk: { child_tokens: 120, overlap: 0, fingerprint: 'b' },
    hnsw: { m: 16 },
  });
  expect(diffConfig(live, own)).toEqual([
    { setting: 'chunk.child_tokens', live: '330', own: '120' },
  ]);
});

test('a setting that one of them lacks differs', () => {
  const diff = diffConfig(withConfig({}), withConfig({ embed: { model: 'e5' } }));
  expect(diff).toEqual([{ setting: 'embed.model', live: '—', own: 'e5' }]);
});
