package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server"
	"github.com/weirflow/weir/server/policyfile"
)

// inStore adds, lists or removes keys in the store of a policy.
func (f *keyFlags) inStore(cmd *cobra.Command) (err error) {
	var expires time.Duration
	var remove policyfile.KeyHash
	switch {
	case f.list && (f.remove != "" || f.hash || f.expires != ""):
		return &usageError{errors.New("--list goes with --customer alone")}
	case f.remove != "":
		if remove, err = policyfile.ParseKeyHash(f.remove); err != nil {
			return &usageError{fmt.Errorf("--remove: %w: weir key --list prints it", err)}
		}
	case f.customer == "" && !f.list:
		return &usageError{errors.New("--customer is required: see weir key --help")}
	case f.expires != "":
		if expires, err = duration.Parse(f.expires); err != nil || expires <= 0 {
			return &usageError{fmt.Errorf("--expires %q is not a duration like 90d", f.expires)}
		}
	}
	file, err := loadPolicy(cmd.Context(), f.config, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	keys, err := server.OpenKeyStore(cmd.Context(), file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keys.Close()) }()
	ctx, cancel := context.WithTimeout(cmd.Context(), storeTimeout)
	defer cancel()
	switch {
	case f.list:
		return f.listKeys(cmd, keys)
	case f.remove != "":
		found, err := keys.Remove(ctx, remove)
		if err == nil && !found {
			err = errors.New("the store has no key with this hash")
		}
		return err
	}
	key, err := readAPIKey(cmd.InOrStdin(), f.hash)
	if err != nil {
		return err
	}
	hash, err := keys.Add(ctx, key, policy.Customer{Name: f.customer, Plan: f.plan}, expires)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), hash)
	f.show(cmd, key)
	return nil
}

// storeTimeout is for one change of a key.
const storeTimeout = 10 * time.Second

// listKeys prints the keys in the store, as they are found.
func (f *keyFlags) listKeys(cmd *cobra.Command, keys *server.KeyStore) error {
	return keys.List(cmd.Context(), func(hash string, c policy.Customer, err error) error {
		switch {
		case err != nil:
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", hash, err)
		case f.customer == "" || c.Name == f.customer:
			line := "customer: " + yamlText(c.Name)
			if c.Plan != "" {
				line += ", plan: " + yamlText(c.Plan)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "- { %s, hmac_sha256: %s }\n", line, yamlText(hash))
		}
		return nil
	})
}
