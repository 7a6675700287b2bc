package active

import (
	"fmt"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/decisions"
	"github.com/weirflow/weir/server/policyfile"
)

// decisionLog returns which decisions a policy logs; nil for none. It reads the file with the secret.
func decisionLog(file *policyfile.File) (*decisions.LogOptions, error) {
	of := file.Policy.DecisionLog
	if !of.On {
		return nil, nil
	}
	o := &decisions.LogOptions{Keys: of.Keys == policy.KeysShown, Filter: decisions.Filter{PerSecond: of.PerSecond, Outcomes: decisions.Outcomes(of.Decisions...)}}
	if o.Filter.PerSecond == 0 {
		o.Filter.PerSecond = policy.DefaultLoggedDecisions
	}
	if len(of.Decisions) == 0 {
		o.Filter.Outcomes = decisions.Outcomes("deny")
	}
	if of.SecretFile == "" {
		return o, nil
	}
	secret, err := policyfile.ReadHashSecret(file.Beside(of.SecretFile))
	if err != nil {
		return nil, fmt.Errorf("decision_log.secret_file: %w", err)
	}
	o.Secret = string(secret)
	return o, nil
}
