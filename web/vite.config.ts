import { readFileSync } from 'node:fs';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

// `anabranch up --ui-dev` sets both. The proxy signs in, so that the page needs no cookie.
const api = process.env.ANABRANCH_UI_API ?? 'http://127.0.0.1:8420';
const token = process.env.ANABRANCH_UI_TOKEN;
const proxy = {
  target: api,
  changeOrigin: true,
  headers: { origin: api, ...(token ? { authorization: `Bearer ${token}` } : {}) },
};

const { version: pdfjs } = JSON.parse(readFileSync('node_modules/pdfjs-dist/package.json', 'utf8'));

/** pdf.js asks for its image decoders by name, so they are copied without a hash. */
const decoders = {
  name: 'pdfjs-decoders',
  generateBundle(this: { emitFile: (file: EmittedAsset) => string }) {
    for (const name of ['jbig2_nowasm_fallback.js', 'openjpeg_nowasm_fallback.js']) {
      const source = readFileSync(`node_modules/pdfjs-dist/wasm/${name}`);
      this.emitFile({ type: 'asset', fileName: `assets/pdfjs-${pdfjs}/${name}`, source });
    }
  },
};
type EmittedAsset = { type: 'asset'; fileName: string; source: Uint8Array };

export default defineConfig(({ command }) => ({
  // Relative in the build: <base> in the page says where it is served.
  base: command === 'build' ? './' : '/ui/',
  plugins: [react(), decoders],
  resolve: { alias: { '@': new URL('./src', import.meta.url).pathname } },
  server: {
    host: '127.0.0.1',
    proxy: Object.fromEntries(
      ['/v1', '/readyz', '/health', '/metrics', '/openapi.json', '/docs'].map((path) => [
        path,
        proxy,
      ]),
    ),
  },
  // The CSP allows no data: scripts, and preloading needs none in browsers of today.
  build: { target: 'es2023', modulePreload: { polyfill: false }, assetsInlineLimit: 0 },
  test: { environment: 'jsdom', include: ['src/**/*.test.{ts,tsx}'] },
}));
