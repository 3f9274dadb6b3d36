import { defineWords } from '@/shared/i18n';

/** Words of what an answer rests on, and of what changed it. */
export const restsOnWords = defineWords(
  {
    show: 'What does it rest on?',
    verdicts: {
      one_document: 'Rests on one document',
      confirmed: 'Confirmed',
      contested: 'The documents disagree',
      unknown: 'No sentence could be compared',
    },
    confirmedBy: (n: string) => `Confirmed by ${n} documents`,
    without: 'Without',
    outcomes: {
      unchanged: 'Other documents state the same.',
      other_words: 'Another sentence takes its place.',
      unsupported: 'Nothing else that was read states it.',
    },
    otherwise: (name: string, revision: string, value: string) =>
      `${name} (revision ${revision}) says otherwise: ${value}.`,
    byQuotes: 'A chat model wrote the answer; its passages are compared by what they state.',
    since: 'What has changed it since?',
    nothing: 'Asked again now, the answer is the same.',
    before: 'Before',
    after: 'After',
    refused: 'Refused',
    position: (topic: string, partition: string, offset: string) =>
      `Received at ${topic}[${partition}]:${offset}`,
    counted: (changes: string, reruns: string) => `changes: ${changes} · reruns: ${reruns}`,
  },
  {
    show: 'Em que ela se apoia?',
    verdicts: {
      one_document: 'Apoia-se em um documento',
      confirmed: 'Confirmada',
      contested: 'Os documentos discordam',
      unknown: 'Nenhuma frase pôde ser comparada',
    },
    confirmedBy: (n) => `Confirmada por ${n} documentos`,
    without: 'Sem',
    outcomes: {
      unchanged: 'Outros documentos dizem o mesmo.',
      other_words: 'Outra frase ocupa o seu lugar.',
      unsupported: 'Nada mais do que foi lido o diz.',
    },
    otherwise: (name, revision, value) =>
      `${name} (revisão ${revision}) diz outra coisa: ${value}.`,
    byQuotes: 'Um modelo escreveu a resposta; as passagens são comparadas pelo que afirmam.',
    since: 'O que a mudou desde então?',
    nothing: 'Perguntada de novo agora, a resposta é a mesma.',
    before: 'Antes',
    after: 'Depois',
    refused: 'Recusada',
    position: (topic, partition, offset) => `Recebido em ${topic}[${partition}]:${offset}`,
    counted: (changes, reruns) => `mudanças: ${changes} · repetições: ${reruns}`,
  },
);
