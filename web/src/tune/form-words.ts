import { defineWords } from '@/shared/i18n';

export const formWords = defineWords(
  {
    default: (value: string) => `default ${value}`,
    changed: 'differs from the default',
    undoShort: 'undo',
    reset: (name: string) => `Reset ${name}`,
    undo: (name: string) => `Undo the edit of ${name}`,
    notSet: 'not set',
    invalidJson: 'This is not JSON.',
    fileOnly: 'file only',
    yes: 'on',
    no: 'off',
    empty: 'empty',
    slider: (name: string) => `${name}, slider`,
  },
  {
    default: (value) => `padrão ${value}`,
    changed: 'difere do padrão',
    undoShort: 'desfazer',
    reset: (name) => `Restaurar ${name}`,
    undo: (name) => `Desfazer a edição de ${name}`,
    notSet: 'não definido',
    invalidJson: 'Isto não é JSON.',
    fileOnly: 'só em arquivo',
    yes: 'ligado',
    no: 'desligado',
    empty: 'vazio',
    slider: (name) => `${name}, controle deslizante`,
  },
);
