import { Combobox, TextInput, useCombobox } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useRef, useState } from 'react';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { type Entity, useEntities } from './data';
import { TypeDot } from './type-dot';
import { graphWords } from './words';

/** Find an entity by a part of its name; it becomes a start of the graph. */
export function EntitySearch({ onPick }: { onPick: (entity: Entity) => void }) {
  const words = useWords(graphWords);
  const [text, setText] = useState('');
  const [debounced] = useDebouncedValue(text.trim(), 150);
  const found = useEntities(debounced);
  const combobox = useCombobox({ onDropdownClose: () => combobox.resetSelectedOption() });
  const input = useRef<HTMLInputElement>(null);
  useKeys([{ keys: 'f', label: words.search, run: () => input.current?.focus() }]);
  const items = debounced === '' ? [] : (found.data?.items ?? []);
  return (
    <Combobox
      store={combobox}
      onOptionSubmit={(id) => {
        const entity = items.find((item) => item.id === id);
        if (entity) onPick(entity);
        setText('');
        combobox.closeDropdown();
      }}
    >
      <Combobox.Target>
        <TextInput
          ref={input}
          aria-label={words.search}
          placeholder={words.searchHint}
          w={300}
          maw="100%"
          value={text}
          maxLength={200}
          onChange={(event) => {
            setText(event.currentTarget.value);
            combobox.openDropdown();
            combobox.selectFirstOption();
          }}
          onBlur={() => combobox.closeDropdown()}
        />
      </Combobox.Target>
      <Combobox.Dropdown hidden={debounced === ''}>
        <Combobox.Options>
          {items.map((item) => (
            <Combobox.Option key={item.id} value={item.id}>
              <TypeDot type={item.type} /> <span className="foreign">{item.name}</span>{' '}
              <span className="muted">
                {item.type} · {item.mentions}
              </span>
            </Combobox.Option>
          ))}
          {items.length === 0 && found.isSuccess && (
            <Combobox.Empty>{words.nothing}</Combobox.Empty>
          )}
        </Combobox.Options>
      </Combobox.Dropdown>
    </Combobox>
  );
}
