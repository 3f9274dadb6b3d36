import { Stack, Title } from '@mantine/core';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { DataTable } from '@/shared/ui/table';
import { edgeKey, relationLabel, type Subgraph } from './model';
import { TypeDot } from './type-dot';
import { graphWords } from './words';

/** The graph in words: what the drawing shows, for keyboards and screen readers. */
export function GraphTable({
  graph,
  selected,
  onSelect,
}: {
  graph: Subgraph;
  selected: string | undefined;
  onSelect: (id: string) => void;
}) {
  const words = useWords(graphWords);
  const format = useFormat();
  const names = new Map(graph.nodes.map((node) => [node.id, node.name]));
  return (
    <Stack gap="md">
      <Title order={2}>{words.entities}</Title>
      <DataTable
        label={words.entities}
        rows={[...graph.nodes].sort((a, b) => b.mentions - a.mentions)}
        rowKey={(node) => node.id}
        onOpen={(node) => onSelect(node.id)}
        isSelected={(node) => node.id === selected}
        maxHeight="48vh"
        columns={[
          {
            key: 'name',
            label: words.entity,
            cell: (node) => <span className="foreign">{node.name}</span>,
          },
          {
            key: 'type',
            label: words.type,
            cell: (node) => (
              <span>
                <TypeDot type={node.type} /> {node.type}
              </span>
            ),
          },
          {
            key: 'mentions',
            label: words.mentions,
            isNumber: true,
            cell: (node) => format.count(node.mentions),
          },
        ]}
      />
      <Title order={2}>{words.relations}</Title>
      <DataTable
        label={words.relations}
        rows={graph.edges}
        rowKey={edgeKey}
        maxHeight="48vh"
        columns={[
          {
            key: 'subject',
            label: words.entity,
            cell: (edge) => <span className="foreign">{names.get(edge.subject_id)}</span>,
          },
          {
            key: 'type',
            label: words.relation,
            cell: (edge) => <span className="foreign">{relationLabel(edge.type)}</span>,
          },
          {
            key: 'object',
            label: words.object,
            cell: (edge) => <span className="foreign">{names.get(edge.object_id)}</span>,
          },
          {
            key: 'documents',
            label: words.documents,
            isNumber: true,
            cell: (edge) => format.count(edge.documents),
          },
        ]}
      />
    </Stack>
  );
}
