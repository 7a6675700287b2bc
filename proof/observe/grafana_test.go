package observe

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// grafanaTypes is the start of a program in TypeScript that uses Grafana's types: Plain is a type as JSON has it, in which the
// values of enumerations are texts.
const grafanaTypes = `import type { Dashboard } from '@grafana/schema'
import type { Options, FieldConfig } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen'
type Plain<T> = T extends string ? ` + "`${T}`" + ` : T extends number | boolean | null | undefined ? T : T extends (infer U)[] ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T
`

// compile returns what the TypeScript compiler says against a dashboard whose parts have to be of Grafana's types.
func compile(t *testing.T, dashboard []byte) string {
	t.Helper()
	var parts struct {
		Panels []struct {
			Type        string
			Options     json.RawMessage
			FieldConfig struct {
				Defaults struct{ Custom json.RawMessage }
			}
		}
	}
	if err := json.Unmarshal(dashboard, &parts); err != nil {
		t.Fatal(err)
	}
	text := grafanaTypes + fmt.Sprintf("export const dashboard: Dashboard = %s\n", dashboard)
	for i, p := range parts.Panels {
		switch p.Type {
		case "timeseries":
			text += fmt.Sprintf("export const options%d: Plain<Options> = %s\nexport const custom%d: Plain<FieldConfig> = %s\n", i, p.Options, i, p.FieldConfig.Defaults.Custom)
		case "row":
		default:
			t.Fatalf("a panel is a %s: check its options here, too", p.Type)
		}
	}
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	tsc := filepath.Join(modules, "typescript", "bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		t.Fatalf("typescript is not installed: make needs, or npm ci --ignore-scripts in proof/observe (%v)", err)
	}
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dashboard.ts"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program(t, "node", "nodejs"), tsc, "--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022", "dashboard.ts")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if (err != nil) != (len(out) > 0) {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestGrafanaSchema: the dashboard, and the options and fields of its panels, are of the types of Grafana's own schema. Mistakes
// in each of them are found.
func TestGrafanaSchema(t *testing.T) {
	text, err := os.ReadFile(monitoring + "grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	if out := compile(t, text); out != "" {
		t.Error(out)
	}
	for what, c := range map[string][2]string{
		"a dashboard": {`"editable": true`, `"editable": "yes"`},
		"a panel":     {`"x": 0`, `"x": "left"`},
		"an option":   {`"displayMode": "list"`, `"displayMode": "lists"`},
		"a field":     {`"drawStyle": "line"`, `"drawStyle": "lines"`},
		"an unknown":  {`"drawStyle": "line"`, `"drawStyles": "line"`},
	} {
		wrong := strings.Replace(string(text), c[0], c[1], 1)
		if wrong == string(text) {
			t.Errorf("%s: the dashboard has no %s", what, c[0])
		} else if compile(t, []byte(wrong)) == "" {
			t.Errorf("%s: %s is not found to be wrong", what, c[1])
		}
	}
}
