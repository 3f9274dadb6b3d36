import { createContext, type ReactNode, useContext, useEffect, useMemo, useState } from 'react';

export const LANGUAGES = { en: 'English', 'pt-BR': 'Português' } as const;
export type Language = keyof typeof LANGUAGES;

/**
 * A feature's words in both languages. The types demand every key in both, and the same arguments.
 *
 * `const words = defineWords({ n: (n: number) => `${n} chunks` }, { n: (n) => `${n} trechos` })`
 */
export function defineWords<W extends Words>(en: W, pt: SameShape<W>): Dictionary<W> {
  return { en, 'pt-BR': pt as unknown as W };
}

/** `1 event`, `12 events`: the count as it is shown, and the word that agrees with it. */
export function plural(n: string, one: string, many: string): string {
  return `${n} ${n === '1' ? one : many}`;
}

// biome-ignore lint/suspicious/noExplicitAny: arguments differ from word to word.
type Words = { [key: string]: string | ((...values: any[]) => string) | Words };
type SameShape<W> = {
  [K in keyof W]: W[K] extends string
    ? string
    : // biome-ignore lint/suspicious/noExplicitAny: as above.
      W[K] extends (...values: any[]) => string
      ? W[K]
      : SameShape<W[K]>;
};
export type Dictionary<W> = Record<Language, W>;

const LanguageContext = createContext<{ language: Language; setLanguage: (l: Language) => void }>({
  language: 'en',
  setLanguage: () => {},
});

export function LanguageProvider({ children }: { children: ReactNode }) {
  const [language, setLanguage] = useState<Language>(preferredLanguage);
  useEffect(() => {
    document.documentElement.lang = language;
    localStorage.setItem('language', language);
  }, [language]);
  const value = useMemo(() => ({ language, setLanguage }), [language]);
  return <LanguageContext value={value}>{children}</LanguageContext>;
}

function preferredLanguage(): Language {
  const stored = localStorage.getItem('language');
  if (stored !== null && stored in LANGUAGES) return stored as Language;
  return navigator.language.startsWith('pt') ? 'pt-BR' : 'en';
}

export function useLanguage() {
  return useContext(LanguageContext);
}

/** The words of a feature in the language of the reader. */
export function useWords<W>(dictionary: Dictionary<W>): W {
  return dictionary[useContext(LanguageContext).language];
}
