package main

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
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

func keyCommand() *cobra.Command {
	var customer, plan, secretFile string
	var hash bool
	c := &cobra.Command{
		Use:   "key --customer NAME [--plan PLAN] --secret-file FILE",
		Short: "Make an API key for a customer",
		Long: `Key makes an API key. It prints the key on stderr, and its line for plans.api_keys on stdout. The line has a hash of the
key, and the key is stored nowhere: it cannot be shown again.

FILE is hash_secret_file of the policy. With --hash, the key is one that exists: it is read from stdin.`,
		Example: "  weir key --customer acme --plan pro --secret-file plans.secret >> keys.yaml\n" +
			"  weir key --customer acme --plan pro --secret-file plans.secret --hash < key.txt >> keys.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if customer == "" || secretFile == "" {
				return &usageError{errors.New("--customer and --secret-file are required: see weir key --help")}
			}
			secret, err := policyfile.ReadHashSecret(secretFile)
			if err != nil {
				return &usageError{fmt.Errorf("%w: create it with: head -c 32 /dev/urandom | base64 > %s", err, secretFile)}
			}
			key, err := readAPIKey(cmd.InOrStdin(), hash)
			if err != nil {
				return err
			}
			sum := policyfile.HashAPIKey(secret, key)
			line := "- { customer: " + yamlText(customer)
			if plan != "" {
				line += ", plan: " + yamlText(plan)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s, hmac_sha256: %s }\n", line, yamlText(hex.EncodeToString(sum[:])))
			if !hash {
				fmt.Fprintf(cmd.ErrOrStderr(), "the key, which is shown only once:\n%s\n", key)
			}
			return nil
		},
	}
	c.Flags().StringVar(&customer, "customer", "", "the name of the customer (required)")
	c.Flags().StringVar(&plan, "plan", "", "the customer's plan (default: that of the policy)")
	c.Flags().StringVar(&secretFile, "secret-file", "", "the file with the secret that keys are hashed with (required)")
	c.Flags().BoolVar(&hash, "hash", false, "read an existing key from stdin, and print its line")
	return c
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
