import { Button, CloseButton, Group, Select, Stack, Text, Title } from '@mantine/core';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { ErrorState, QueryState } from '@/shared/ui/states';
import { Aliases } from './aliases';
import { Corrections } from './corrections';
import { type EntityDetails, useEntity } from './data';
import classes from './graph.module.css';
import { useOpenMentions } from './mentions';
import { type Edge, type Node, relationLabel } from './model';
import { TypeDot } from './type-dot';
import { graphWords } from './words';

export type EntityPanelProps = {
  id: string;
  nodes: readonly Node[];
  pathTo: string | undefined;
  path: readonly Edge[] | null;
  isSearchingPath: boolean;
  onSelect: (id: string | undefined) => void;
  onExpand: (id: string) => void;
  onRemove: (id: string) => void;
  onPath: (to: string | undefined) => void;
};

/** What is known of one entity: names, relations, claims, and where documents mention it. */
export function EntityPanel(props: EntityPanelProps) {
  const query = useEntity(props.id);
  return (
    <section className={`panel ${classes.entity}`}>
      <QueryState query={query} rows={10}>
        {(entity) => <Details key={entity.id} {...props} entity={entity} />}
      </QueryState>
    </section>
  );
}

function Details({ entity, ...props }: EntityPanelProps & { entity: EntityDetails }) {
  const words = useWords(graphWords);
  const format = useFormat();
  const mentions = useOpenMentions();
  const names = new Map(props.nodes.map((node) => [node.id, node.name]));
  const occurrences = entity.occurrences.map((one) => ({ ...one, text: one.name }));
  return (
    <Stack gap="md">
      <Stack gap={4}>
        <Group gap={8} wrap="nowrap" align="flex-start">
          <Title order={2} className="foreign" style={{ flex: 1, minWidth: 0 }}>
            {entity.name}
          </Title>
          <CloseButton aria-label={words.close} onClick={() => props.onSelect(undefined)} />
        </Group>
        <Text size="sm">
          <TypeDot type={entity.type} /> {entity.type}{' '}
          <span className="muted">· {words.mentionedIn(format.count(entity.mentions))}</span>
        </Text>
      </Stack>
      <Group gap={8}>
        <Button variant="default" onClick={() => props.onExpand(entity.id)}>
          {words.expand}
        </Button>
        <Button variant="default" onClick={() => props.onRemove(entity.id)}>
          {words.remove}
        </Button>
      </Group>
      <Stack gap={6}>
        <Select
          label={words.pathTo}
          placeholder={words.pathHint}
          searchable
          clearable
          data={props.nodes
            .filter((node) => node.id !== entity.id)
            .map((node) => ({ value: node.id, label: node.name }))}
          value={props.pathTo ?? null}
          onChange={(to) => props.onPath(to ?? undefined)}
        />
        {props.pathTo && !props.isSearchingPath && <Path path={props.path} names={names} />}
      </Stack>
      <Relations entity={entity} onSelect={props.onSelect} />
      {entity.claims.length > 0 && (
        <Stack gap={4}>
          <Text fw={600}>{words.claims}</Text>
          <ul className={classes.list}>
            {entity.claims.map((claim) => (
              <li key={`${claim.property} ${claim.value} ${claim.chunk_id} ${claim.char_start}`}>
                <span className="foreign">
                  {claim.property}: {claim.value}
                </span>
                <Button
                  variant="subtle"
                  size="compact-xs"
                  aria-label={`${words.openMention}: ${claim.property}`}
                  onClick={() => mentions.open([{ ...claim, text: claim.value }], 0)}
                >
                  ›
                </Button>
              </li>
            ))}
          </ul>
        </Stack>
      )}
      <Stack gap={4}>
        <Text fw={600}>{words.mentions}</Text>
        {mentions.error !== null && <ErrorState error={mentions.error} />}
        <ul className={classes.list}>
          {occurrences.map((one, index) => (
            <li key={`${one.chunk_id} ${one.char_start}`}>
              <button
                type="button"
                className={`${classes.link} foreign`}
                onClick={() => mentions.open(occurrences, index)}
              >
                {one.title ?? one.external_id ?? one.document_id}
              </button>
              <span className="muted foreign">{one.name}</span>
            </li>
          ))}
        </ul>
      </Stack>
      <Aliases entity={entity} />
      <Corrections
        entity={entity}
        types={[...new Set(props.nodes.map((node) => node.type))]}
        onSelect={props.onSelect}
      />
    </Stack>
  );
}

function Path({ path, names }: { path: readonly Edge[] | null; names: Map<string, string> }) {
  const words = useWords(graphWords);
  const format = useFormat();
  if (path === null) return <Text size="sm">{words.noPath}</Text>;
  return (
    <Stack gap={2} aria-live="polite">
      <Text size="sm">
        {path.length === 1 ? words.onePath : words.path(format.count(path.length))}
      </Text>
      <ol className={classes.list}>
        {path.map((edge) => (
          <li key={`${edge.subject_id} ${edge.type} ${edge.object_id}`}>
            <span className="foreign">
              {names.get(edge.subject_id)}{' '}
              <span className="muted">→ {relationLabel(edge.type)} →</span>{' '}
              {names.get(edge.object_id)}
            </span>
          </li>
        ))}
      </ol>
    </Stack>
  );
}

function Relations({
  entity,
  onSelect,
}: {
  entity: EntityDetails;
  onSelect: (id: string) => void;
}) {
  const words = useWords(graphWords);
  const format = useFormat();
  return (
    <Stack gap={4}>
      <Text fw={600}>{words.relations}</Text>
      {entity.relations.length === 0 && (
        <Text size="sm" c="dimmed">
          {words.noRelations}
        </Text>
      )}
      <ul className={classes.list}>
        {entity.relations.map((edge) => {
          const isSubject = edge.subject_id === entity.id;
          return (
            <li key={`${edge.subject_id} ${edge.type} ${edge.object_id}`}>
              <span className="foreign">
                <span className="muted">
                  {isSubject ? '→' : '←'} {relationLabel(edge.type)}
                </span>{' '}
                <button
                  type="button"
                  className={classes.link}
                  onClick={() => onSelect(isSubject ? edge.object_id : edge.subject_id)}
                >
                  {isSubject ? edge.object : edge.subject}
                </button>
              </span>
              <span className="muted" title={words.documents}>
                {format.count(edge.documents)}
              </span>
            </li>
          );
        })}
      </ul>
    </Stack>
  );
}
