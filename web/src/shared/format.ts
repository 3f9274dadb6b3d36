import { type Language, useLanguage } from './i18n';

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const THIN_SPACE = '\u2009';

export type Format = ReturnType<typeof formatFor>;

/** Numbers, sizes, durations and times in the reader's language. */
export function useFormat(): Format {
  return formats[useLanguage().language];
}

export function formatFor(language: Language) {
  const relative = new Intl.RelativeTimeFormat(language, { numeric: 'auto', style: 'short' });
  const exact = new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'medium' });
  const day = new Intl.DateTimeFormat(language, { dateStyle: 'medium' });
  const clock = new Intl.DateTimeFormat(language, { timeStyle: 'medium' });
  const minute = new Intl.DateTimeFormat(language, { timeStyle: 'short' });
  const scores = new Intl.NumberFormat(language, {
    minimumFractionDigits: 2,
    maximumFractionDigits: 2,
    useGrouping: false,
  });
  const decimal = (value: number, digits: number) =>
    value.toLocaleString(language, { maximumFractionDigits: digits, useGrouping: false });
  return {
    /** 12 345 with thin separators. */
    count: (value: number) =>
      value.toLocaleString('en', { maximumFractionDigits: 0 }).replaceAll(',', THIN_SPACE),
    decimal,
    /** A score as people read it: .91, and 0,91 in Portuguese. */
    score: (value: number) =>
      language === 'en' ? value.toFixed(2).replace(/^(-?)0\./, '$1.') : scores.format(value),
    percent: (share: number) => `${decimal(share * 100, 0)}${THIN_SPACE}%`,
    bytes: (bytes: number) => {
      const units = ['B', 'KB', 'MB', 'GB', 'TB'];
      let value = bytes;
      let unit = 0;
      while (value >= 1000 && unit < units.length - 1) {
        value /= 1000;
        unit += 1;
      }
      return `${decimal(value, unit === 0 || value >= 100 ? 0 : 1)} ${units[unit]}`;
    },
    duration: (ms: number) => {
      if (ms < 1000) return `${decimal(ms, ms < 10 ? 1 : 0)} ms`;
      const seconds = ms / 1000;
      if (seconds < 90) return `${decimal(seconds, seconds < 10 ? 1 : 0)} s`;
      if (seconds < 90 * MINUTE) return `${decimal(seconds / MINUTE, 0)} min`;
      if (seconds < 2 * DAY) return `${decimal(seconds / HOUR, 1)} h`;
      return `${decimal(seconds / DAY, 1)} d`;
    },
    /** Relative within a day, the date before it. */
    ago: (time: string | Date, now = Date.now()) => {
      const seconds = (new Date(time).getTime() - now) / 1000;
      const age = Math.abs(seconds);
      if (age < MINUTE) return relative.format(Math.round(seconds), 'second');
      if (age < HOUR) return relative.format(Math.round(seconds / MINUTE), 'minute');
      if (age < DAY) return relative.format(Math.round(seconds / HOUR), 'hour');
      return day.format(new Date(time));
    },
    exact: (time: string | Date) => exact.format(new Date(time)),
    clock: (time: string | Date) => clock.format(new Date(time)),
    minute: (time: string | Date) => minute.format(new Date(time)),
    day: (time: string | Date) => day.format(new Date(time)),
  };
}

// One for each language: those of Intl take longer to make than a table row takes to draw.
const formats: Record<Language, Format> = { en: formatFor('en'), 'pt-BR': formatFor('pt-BR') };
