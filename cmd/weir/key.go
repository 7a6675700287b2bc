package main

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server/policyfile"
)

// keyBytes is how much randomness a key has.
const keyBytes = 32

// keyFlags are the flags of weir key.
type keyFlags struct {
	customer, plan, secretFile, config, expires, remove string
	hash, list                                          bool
}

func keyCommand() *cobra.Command {
	var f keyFlags
	c := &cobra.Command{
		Use:   "key --customer NAME [--plan PLAN] --secret-file FILE | --config FILE",
		Short: "Make an API key for a customer, or list and remove keys in a store",
		Long: `Key makes an API key. It prints the key on stderr, and its line for plans.api_keys on stdout. The line has a hash of the
key, and the key is stored nowhere: it cannot be shown again.

--secret-file is hash_secret_file of the policy. With --hash, the key is one that exists: it is read from stdin.

With --config, the key is written into the store that the policy names in plans.api_keys, and its hash is printed on
stdout. --list prints the hashes of all keys in the store, or of one customer, with customers and plans. --remove takes
the key with a hash out.`,
		Example: "  weir key --customer acme --plan pro --secret-file plans.secret >> keys.yaml\n" +
			"  weir key --customer acme --plan pro --secret-file plans.secret --hash < key.txt >> keys.yaml\n" +
			"  weir key --customer acme --plan pro --config policy.yaml --expires 90d\n" +
			"  weir key --list --customer acme --config policy.yaml\n" +
			"  weir key --remove HASH --config policy.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.config != "" && f.secretFile != "":
				return &usageError{errors.New("--config names the secret: leave --secret-file out")}
			case f.config != "":
				return f.inStore(cmd)
			case f.list || f.remove != "" || f.expires != "":
				return &usageError{errors.New("--list, --remove and --expires are for keys in a store: add --config FILE")}
			}
			return f.asLine(cmd)
		},
	}
	c.Flags().StringVar(&f.customer, "customer", "", "the name of the customer (required for a new key)")
	c.Flags().StringVar(&f.plan, "plan", "", "the customer's plan (default: that of the policy)")
	c.Flags().StringVar(&f.secretFile, "secret-file", "", "the file with the secret that keys are hashed with")
	c.Flags().StringVar(&f.config, "config", "", "the policy that names the store with the keys")
	c.Flags().StringVar(&f.expires, "expires", "", "with --config: the key becomes invalid after this time, like 90d (default: never)")
	c.Flags().BoolVar(&f.hash, "hash", false, "read an existing key from stdin instead of making one")
	c.Flags().BoolVar(&f.list, "list", false, "with --config: list the keys")
	c.Flags().StringVar(&f.remove, "remove", "", "with --config: take out the key with this hash")
	return c
}

// asLine makes a key, and prints its line for a file.
func (f *keyFlags) asLine(cmd *cobra.Command) error {
	if f.customer == "" || f.secretFile == "" {
		return &usageError{errors.New("--customer and --secret-file are required: see weir key --help")}
	}
	secret, err := policyfile.ReadHashSecret(f.secretFile)
	if err != nil {
		return &usageError{fmt.Errorf("%w: create it with: head -c 32 /dev/urandom | base64 > %s", err, f.secretFile)}
	}
	key, err := readAPIKey(cmd.InOrStdin(), f.hash)
	if err != nil {
		return err
	}
	line := "- { customer: " + yamlText(f.customer)
	if f.plan != "" {
		line += ", plan: " + yamlText(f.plan)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s, hmac_sha256: %s }\n", line, yamlText(policyfile.HashAPIKey(secret, key).String()))
	f.show(cmd, key)
	return nil
}

// show prints a new key.
func (f *keyFlags) show(cmd *cobra.Command, key string) {
	if !f.hash {
		fmt.Fprintf(cmd.ErrOrStderr(), "the key, which is shown only once:\n%s\n", key)
	}
}

// readAPIKey makes a key, or reads an existing one.
func readAPIKey(in io.Reader, existing bool) (string, error) {
	if existing {
		line, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
		key := strings.TrimSpace(line)
		if key == "" {
			return "", &usageError{fmt.Errorf("no key on stdin: %w", err)}
		}
		return key, nil
	}
	random := make([]byte, keyBytes)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	return "weir_" + base64.RawURLEncoding.EncodeToString(random), nil
}

// plainYAML matches texts that YAML reads as themselves.
var plainYAML = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]*$`)

// yamlText returns a text as a YAML value: as it is, or quoted.
func yamlText(text string) string {
	switch strings.ToLower(text) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
	default:
		if plainYAML.MatchString(text) {
			return text
		}
	}
	quoted, _ := json.Marshal(text) // a text can always be written
	return string(quoted)
}
