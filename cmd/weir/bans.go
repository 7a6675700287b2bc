package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/internal/asciijson"
)

func bansCommand() *cobra.Command {
	var s servers
	var asJSON bool
	c := &cobra.Command{
		Use:   "bans",
		Short: "List the bans and grants of a running server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			return s.each(cmd, func(address string) error {
				var list struct {
					Overrides []override `json:"overrides"`
				}
				if err := s.ask(cmd.Context(), "GET", address+"/v1/overrides", nil, "", &list); err != nil {
					return err
				}
				if asJSON {
					return printJSON(out, list)
				}
				if len(s.addresses) > 1 {
					fmt.Fprintln(out, address)
				}
				w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
				for _, ex := range list.Overrides {
					var parameters []string
					for _, name := range slices.Sorted(maps.Keys(ex.Set)) {
						parameters = append(parameters, name+"="+ex.Set[name])
					}
					fmt.Fprintln(w, strings.TrimRight(strings.Join([]string{ex.Kind, ex.Limit, keyText(ex.Key), ex.Until, strings.Join(parameters, " ")}, "\t"), "\t"))
				}
				return w.Flush()
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the bans and grants as JSON")
	s.flags(c)
	return c
}

// keyText writes a key as keyParts reads it. Keys with control characters, which a terminal could
// interpret, are written as JSON.
func keyText(parts []string) string {
	text := strings.Join(parts, ",")
	plain := len(parts) > 0 && !strings.HasPrefix(text, "[") && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r >= 0x80 })
	if plain && strings.Count(text, ",") == len(parts)-1 {
		return text
	}
	if parts == nil {
		parts = []string{}
	}
	quoted, _ := asciijson.Marshal(parts) // strings can always be encoded
	return string(quoted)
}
