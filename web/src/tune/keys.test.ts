import { expect, test } from 'vitest';
import { outcomeOf } from './audit-page';
import { toLocalInput } from './create-key';
import { stateOf } from './keys-page';

const key = {
  id: '0123456789abcdef',
  tenant: 'default',
  name: 'ci',
  role: 'writer' as const,
  readers: null,
  created_at: '2026-01-01T00:00:00Z',
  created_by: 'local',
  expires_at: null,
  rotated_at: null,
  previous_until: null,
  revoked_at: null,
};
const now = Date.parse('2026-06-01T00:00:00Z');

test('a revoked key is revoked, also after it expired', () => {
  const expires_at = '2026-05-01T00:00:00Z';
  expect(stateOf(key, now)).toBe('active');
  expect(stateOf({ ...key, expires_at }, now)).toBe('expired');
  expect(stateOf({ ...key, expires_at, revoked_at: '2026-02-01T00:00:00Z' }, now)).toBe('revoked');
});

test('an expiry keeps its instant through the local input', () => {
  const time = new Date('2026-06-01T12:34:00Z');
  expect(new Date(toLocalInput(time)).toISOString()).toBe(time.toISOString());
});

test('an action that ended with the code of an error has failed', () => {
  const event = {
    audit_id: '1',
    tenant: 'acme',
    occurred_at: '2026-06-01T00:00:00Z',
    actor: 'key:0123',
    role: 'admin',
    action: 'source.added',
    subject: 'crm',
    request_id: null,
    outcome: 'DUPLICATE_SOURCE',
  };
  expect(outcomeOf(event)).toBe('failed');
  expect(outcomeOf({ ...event, outcome: 'refused' })).toBe('refused');
});
