import { QueryClient } from '@tanstack/react-query';
import { beforeEach, expect, test } from 'vitest';
import { chosenTenant, requestHeaders } from '@/shared/api/client';
import { switchTenant } from './tenant-switch';

beforeEach(() => sessionStorage.clear());

test('a switch leaves nothing of the tenant before', () => {
  const client = new QueryClient();
  client.setQueryData(['documents'], ['secret of acme']);
  const addresses: string[] = [];
  switchTenant(client, 'globex', (address) => addresses.push(address));
  expect(client.getQueryCache().getAll()).toEqual([]);
  expect(requestHeaders()['X-Anabranch-Tenant']).toBe('globex');
  // The page reloads at a screen whose address names no document or run of the previous tenant.
  expect(addresses).toEqual([new URL('query', document.baseURI).href]);
});

test('back to the own tenant sends no tenant and stores none', () => {
  switchTenant(new QueryClient(), 'globex', () => {});
  switchTenant(new QueryClient(), null, () => {});
  expect(chosenTenant()).toBeNull();
  expect(sessionStorage.getItem('tenant')).toBeNull();
  expect(requestHeaders()).not.toHaveProperty('X-Anabranch-Tenant');
});
