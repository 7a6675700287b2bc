package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/weirmysql"
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
	var dialect string
	c := &cobra.Command{
		Use:   "sql",
		Short: "Print the SQL that makes the tables in PostgreSQL, MariaDB or MySQL",
		Long: `Print the SQL that makes the tables and functions in PostgreSQL, or the table and procedures in MariaDB or MySQL: for
psql, mariadb or mysql, or for a tool for migrations. It can be carried out again, and while Weir runs. weir serve does so by itself
where its user may.`,
		Example: `  weir store sql | psql --set ON_ERROR_STOP=1 DATABASE
  weir store sql --dialect mysql | mariadb DATABASE`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := schema.Script()
			switch {
			case err != nil:
				return &usageError{errors.New(strings.TrimPrefix(err.Error(), "weirsql: "))}
			case dialect == "mysql" || dialect == "mariadb":
				if cmd.Flags().Changed("schema") || schema.Unlogged {
					return &usageError{errors.New("--schema and --unlogged are for PostgreSQL: name the database to the client, as in weir store sql --dialect mysql | mariadb DATABASE")}
				}
				text = weirmysql.Schema{}.Script()
			case dialect != "postgres":
				return &usageError{fmt.Errorf("--dialect %q: write postgres, mysql or mariadb", dialect)}
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().StringVar(&dialect, "dialect", "postgres", "postgres, mysql or mariadb")
	c.Flags().StringVar(&schema.Name, "schema", "weir", "the schema that they are made in; the parameter schema of the store's URL")
	c.Flags().BoolVar(&schema.Unlogged, "unlogged", false, "tables that a crash of the server empties, and that cost less")
	return c
}
