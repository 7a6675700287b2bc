package main

import (
	"strings"
	"testing"
)

// TestStoreSQL: each dialect has its script, and a flag of another one is refused.
func TestStoreSQL(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   "CREATE OR REPLACE FUNCTION weir.carry_out",
		"--dialect postgres --schema limits": `CREATE OR REPLACE FUNCTION "limits".carry_out`,
		"--dialect mysql":                    "CREATE TABLE IF NOT EXISTS weir_states",
		"--dialect mariadb":                  "CREATE TABLE IF NOT EXISTS weir_states",
		"--dialect mysql --schema limits":    "error: --schema and --unlogged are for PostgreSQL",
		"--dialect mysql --unlogged":         "error: --schema and --unlogged are for PostgreSQL",
		"--dialect oracle":                   `error: --dialect "oracle": write postgres, mysql or mariadb`,
	} {
		var out strings.Builder
		c := storeSQLCommand()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetOut(&out)
		c.SetArgs(strings.Fields(args))
		got := ""
		if err := c.Execute(); err != nil {
			got = "error: " + err.Error()
		} else {
			got = out.String()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %.200s, want %s", args, got, want)
		}
	}
}
