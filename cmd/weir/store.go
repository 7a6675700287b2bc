package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/weirsql"
)

func storeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "store",
		Short: "Prepare the databases that limits are kept in",
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(storeSQLCommand())
	return c
}

func storeSQLCommand() *cobra.Command {
	var schema weirsql.Schema
	c := &cobra.Command{
		Use:   "sql",
		Short: "Print the SQL that makes the tables and functions in PostgreSQL",
		Long: `Print the SQL that makes the tables and functions in PostgreSQL: for psql, or for a tool for migrations. It can be
carried out again, and while Weir runs. weir serve does so by itself where its user may.`,
		Example: `  weir store sql | psql --set ON_ERROR_STOP=1 DATABASE`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := schema.Script()
			if err != nil {
				return &usageError{errors.New(strings.TrimPrefix(err.Error(), "weirsql: "))}
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().StringVar(&schema.Name, "schema", "weir", "the schema that they are made in; the parameter schema of the store's URL")
	c.Flags().BoolVar(&schema.Unlogged, "unlogged", false, "tables that a crash of the server empties, and that cost less")
	return c
}
