import { defineWords } from '@/shared/i18n';

/** What several screens of the stream say. */
export const streamWords = defineWords(
  {
    document: 'Document',
    stage: 'Stage',
    reason: 'Reason',
    state: 'State',
    name: 'Name',
    actions: 'Actions',
    plan: 'Plan',
    stages: {
      receive: 'Receive',
      transcribe: 'Transcribe',
      chunk: 'Chunk',
      extract: 'Extract',
      embed: 'Embed',
      index: 'Index',
      graph: 'Graph',
      control: 'Control',
      announce: 'Announce',
      erase: 'Erase',
      runs: 'Runs',
      judgements: 'Judgements',
      answers: 'Answers',
      dead_letters: 'Dead letters',
      outcomes: 'Outcomes',
    },
    etaRange: (low: string, high: string) =>
      low === high ? `${low} left` : `${low} to ${high} left`,
    etaUnknown: 'Calculating…',
  },
  {
    document: 'Documento',
    stage: 'Etapa',
    reason: 'Motivo',
    state: 'Estado',
    name: 'Nome',
    actions: 'Ações',
    plan: 'Plano',
    stages: {
      receive: 'Receber',
      transcribe: 'Transcrever',
      chunk: 'Dividir',
      extract: 'Extrair',
      embed: 'Vetorizar',
      index: 'Indexar',
      graph: 'Grafo',
      control: 'Controle',
      announce: 'Anunciar',
      erase: 'Apagar',
      runs: 'Execuções',
      judgements: 'Julgamentos',
      answers: 'Respostas',
      dead_letters: 'Mensagens mortas',
      outcomes: 'Resultados',
    },
    etaRange: (low, high) => (low === high ? `faltam ${low}` : `faltam de ${low} a ${high}`),
    etaUnknown: 'Calculando…',
  },
);

/** The name of a stage in words, or the name itself for one that this page does not know. */
export function stageLabel(words: { stages: Record<string, string> }, stage: string): string {
  return words.stages[stage] ?? stage;
}
