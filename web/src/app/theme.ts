import { type CSSVariablesResolver, createTheme, type MantineColorsTuple } from '@mantine/core';

const accent: MantineColorsTuple = [
  '#e8f2fc',
  '#cfe3f8',
  '#a8cdf2',
  '#7db5ec',
  '#6cb2ff',
  '#2c82d0',
  '#0b5fae',
  '#0a559c',
  '#084681',
  '#063866',
];

export const theme = createTheme({
  colors: { accent },
  primaryColor: 'accent',
  primaryShade: { light: 6, dark: 4 },
  autoContrast: true,
  defaultRadius: 6,
  fontFamily:
    'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif',
  fontFamilyMonospace: 'var(--mono)',
  fontSizes: { xs: '12px', sm: '14px', md: '14px', lg: '18px', xl: '24px' },
  lineHeights: { xs: '1.4', sm: '1.43', md: '1.43', lg: '1.56', xl: '1.3' },
  spacing: { xs: '8px', sm: '12px', md: '16px', lg: '24px', xl: '32px' },
  headings: {
    fontWeight: '600',
    sizes: {
      h1: { fontSize: '24px' },
      h2: { fontSize: '16px' },
      h3: { fontSize: '14px' },
    },
  },
  respectReducedMotion: true,
  cursorType: 'pointer',
  components: {
    Button: {
      defaultProps: { size: 'xs' },
      // Mantine takes the contrast of the light shade, which is white on light blue in the dark.
      vars: (_: unknown, props: { variant?: string; color?: string; disabled?: boolean }) => ({
        root:
          (props.variant ?? 'filled') === 'filled' && !props.color
            ? { '--button-color': 'var(--mantine-primary-color-contrast)' }
            : {},
      }),
    },
    TextInput: { defaultProps: { size: 'xs' } },
    NumberInput: { defaultProps: { size: 'xs' } },
    Textarea: { defaultProps: { size: 'xs' } },
    Select: { defaultProps: { size: 'xs' } },
    MultiSelect: { defaultProps: { size: 'xs' } },
    TagsInput: { defaultProps: { size: 'xs' } },
    Autocomplete: { defaultProps: { size: 'xs' } },
    Checkbox: { defaultProps: { size: 'xs' } },
    Switch: { defaultProps: { size: 'xs' } },
    SegmentedControl: { defaultProps: { size: 'xs' } },
    Tooltip: { defaultProps: { openDelay: 300, withArrow: true } },
    Modal: { defaultProps: { centered: true } },
  },
});

/** Mantine draws with the tokens of `tokens.css`, so that both sheets agree in both themes. */
export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: tokens(),
  dark: tokens(),
});

function tokens(): Record<string, string> {
  return {
    '--mantine-color-body': 'var(--bg)',
    '--mantine-color-text': 'var(--text)',
    '--mantine-color-dimmed': 'var(--muted)',
    '--mantine-color-anchor': 'var(--accent)',
    '--mantine-color-error': 'var(--bad)',
    '--mantine-color-placeholder': 'var(--muted)',
    '--mantine-color-default': 'var(--panel)',
    '--mantine-color-default-hover': 'var(--hover)',
    '--mantine-color-default-border': 'var(--line)',
    '--mantine-color-default-color': 'var(--text)',
  };
}
