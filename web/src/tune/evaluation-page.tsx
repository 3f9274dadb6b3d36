import { Button, Tabs } from '@mantine/core';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { appWords } from '@/app/words';
import { useCan } from '@/shared/api/identity';
import { useWords } from '@/shared/i18n';
import { Page } from '@/shared/ui/page';
import { CandidatesTab } from './candidates-tab';
import { DraftsTab } from './drafts-tab';
import { evaluationWords } from './evaluation-words';
import { ExamsTab } from './exams-tab';
import { JudgementsTab } from './judgements-tab';
import { CalibrateModal, ExamModal } from './run-exam';

const TABS = ['exams', 'candidates', 'drafts', 'judgements'] as const;

export function EvaluationPage() {
  const screens = useWords(appWords).screens;
  const words = useWords(evaluationWords);
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const isOperator = useCan('operator');
  const [form, setForm] = useState<'exam' | 'calibration' | null>(null);
  const tab = TABS.find((known) => known === search.tab) ?? 'exams';
  return (
    <Page
      title={screens.evaluation}
      subtitle={words.subtitle}
      actions={
        isOperator && (
          <>
            <Button variant="default" onClick={() => setForm('calibration')}>
              {words.calibrate}
            </Button>
            <Button onClick={() => setForm('exam')}>{words.run}</Button>
          </>
        )
      }
    >
      <Tabs
        value={tab}
        keepMounted={false}
        onChange={(next) =>
          navigate({
            to: '/evaluation',
            search: { tab: next === 'exams' ? undefined : (next ?? undefined) },
          })
        }
      >
        <Tabs.List mb="md" style={{ flexWrap: 'nowrap', overflowX: 'auto' }}>
          {TABS.map((name) => (
            <Tabs.Tab key={name} value={name}>
              {words.tabs[name]}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="exams">
          <ExamsTab onRun={isOperator ? () => setForm('exam') : undefined} />
        </Tabs.Panel>
        <Tabs.Panel value="candidates">
          <CandidatesTab />
        </Tabs.Panel>
        <Tabs.Panel value="drafts">
          <DraftsTab />
        </Tabs.Panel>
        <Tabs.Panel value="judgements">
          <JudgementsTab />
        </Tabs.Panel>
      </Tabs>
      {form === 'exam' && <ExamModal onClose={() => setForm(null)} />}
      {form === 'calibration' && <CalibrateModal onClose={() => setForm(null)} />}
    </Page>
  );
}
