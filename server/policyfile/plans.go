package policyfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirjwt"
)

// plans reads how plans are found.
func (d *decoder) plans(n *node) policy.Plans {
	j, k := n.get("jwt"), n.get("api_keys")
	return policy.Plans{
		From:           texts(n.get("from")),
		APIKeys:        d.apiKeys(k),
		KeyHeader:      text(n.get("key_header")),
		HashSecretFile: text(n.get("hash_secret_file")),
		Unknown:        text(n.get("unknown")),
		Default:        text(n.get("default")),
		JWT: policy.JWT{
			JWKS:     text(j.get("jwks")),
			Issuer:   text(j.get("issuer")),
			Audience: text(j.get("audience")),
			Customer: text(j.get("customer")),
			Refresh:  d.duration(j.get("refresh"), "5m", "plans", "jwt", "refresh"),
			Leeway:   d.duration(j.get("leeway"), "30s", "plans", "jwt", "leeway"),
		},
	}
}

// apiKeys reads where API keys are: a path, or a store with its settings.
func (d *decoder) apiKeys(n *node) (k policy.APIKeys) {
	if n == nil || n.shape != mapping {
		k.Path = text(n)
		return k
	}
	at := func(field string) []string { return []string{"plans", "api_keys", field} }
	return policy.APIKeys{
		Store:     text(n.get("store")),
		Refresh:   d.duration(n.get("refresh"), "5s", at("refresh")...),
		Stale:     d.duration(n.get("stale"), "10m", at("stale")...),
		OnFailure: text(n.get("on_failure")),
	}
}

// unlimited is the word for a plan that a limit does not apply to.
const unlimited = "unlimited"

// planLimits reads the parameters of a limit by plan: a map of those that differ from the limit's.
func (d *decoder) planLimits(l *policy.Limit, algorithm string, n *node) {
	for _, f := range fields(n) {
		at := []string{"limits", l.Name, "plans", f.name}
		if f.value.shape == scalar {
			if text(f.value) != unlimited {
				d.wrong(fmt.Sprintf("%q is not what the limit is for a plan", text(f.value)), "write unlimited, or parameters like { rate: 100/s, burst: 200 }", at...)
				continue
			}
			l.Plans = append(l.Plans, policy.PlanLimit{Plan: f.name, Unlimited: true})
			continue
		}
		if l.Limit == nil {
			continue // already reported
		}
		values := map[string]any{}
		for _, p := range f.value.fields {
			switch {
			case slices.Contains(policy.Algorithms(), p.name):
				fix := "write the parameters alone"
				if parameters := inline(p.value); p.name == algorithm && parameters != "" {
					fix = f.name + ": " + parameters
				}
				d.wrong(fmt.Sprintf("a plan has the algorithm of its limit, %s, and only other parameters", algorithm), fix, append(at, p.name)...)
			case p.value.shape != scalar:
				d.wrong(p.name+" is not a parameter like this", "write a single value", append(at, p.name)...)
			case !slices.Contains(policy.Fields(algorithm), p.name):
				d.wrong(fmt.Sprintf("a %s has no %q", algorithm, p.name), suggest(p.name, policy.Fields(algorithm)), append(at, p.name)...)
			default:
				values[p.name] = p.value.value
			}
		}
		plan, err := policy.WithPlan(l.Limit, f.name, values)
		var wrong *policy.FieldError
		if errors.As(err, &wrong) {
			d.wrong(strings.TrimPrefix(wrong.Err.Error(), "weir: "), wrong.Fix, append(at, wrong.Field)...)
			continue
		}
		l.Plans = append(l.Plans, plan)
	}
}

// inline writes a map of single values in one line; "" for anything else.
func inline(n *node) string {
	if n.shape != mapping || len(n.fields) == 0 {
		return ""
	}
	var all []string
	for _, f := range n.fields {
		if f.value.shape != scalar {
			return ""
		}
		all = append(all, f.name+": "+text(f.value))
	}
	return "{ " + strings.Join(all, ", ") + " }"
}

// customers reads the API keys that the policy names.
func (f *File) customers(root *node) {
	p := &f.Policy.Plans
	f.jwks(root)
	f.webhookSecret(root)
	if !p.APIKeys.IsSet() || p.HashSecretFile == "" {
		return
	}
	secret, err := f.hashSecret()
	if err != nil {
		f.add(root, finding{path: []string{"plans", "hash_secret_file"}, msg: err.Error(), fix: secretFix(p.HashSecretFile)}, false)
		return
	}
	if p.APIKeys.Store != "" {
		return // keys are looked up when requests have them
	}
	keys, problems, err := LoadAPIKeys(f.Beside(p.APIKeys.Path), secret)
	if err != nil {
		f.add(root, finding{path: []string{"plans", "api_keys"}, msg: err.Error(), fix: "name a file like keys.yaml, or a directory of such files; weir key makes a key and its line"}, false)
		return
	}
	f.Problems = append(f.Problems, problems...)
	f.APIKeys = keys
	known := []string{p.Default}
	for i := range f.Policy.Limits {
		for _, plan := range f.Policy.Limits[i].Plans {
			known = append(known, plan.Plan)
		}
	}
	f.Problems = append(f.Problems, keys.unknownPlans(known)...)
	f.Problems = append(f.Problems, keys.severalPlans()...)
	if keys.Len() == 0 && len(problems) == 0 && p.Unknown != policy.UnknownDefault && slices.Equal(p.From, []string{"api_key"}) {
		f.add(root, finding{path: []string{"plans", "api_keys"}, msg: p.APIKeys.Path + " has no keys: each request that needs a customer gets 401",
			fix: "put a line there in place of []: weir key --customer acme --secret-file " + p.HashSecretFile + " prints one"}, true)
	}
}

// jwks checks a file with the keys for tokens. A URL is not read: the server starts without it.
func (f *File) jwks(root *node) {
	name := f.Policy.Plans.JWT.JWKS
	if name == "" || strings.Contains(name, "://") {
		return
	}
	data, err := readKeyFile(f.Beside(name))
	if err == nil {
		if err = weirjwt.CheckKeys(data); err != nil {
			err = fmt.Errorf("%s cannot be used: %w", name, err)
		}
	}
	if err != nil {
		f.add(root, finding{path: []string{"plans", "jwt", "jwks"}, msg: err.Error(), fix: "name a file with the public keys of the issuer, or an https URL"}, false)
	}
}

// webhookSecret checks the secret that calls of the webhook are signed with.
func (f *File) webhookSecret(root *node) {
	name := f.Policy.Warnings.SecretFile
	if name == "" {
		return
	}
	if _, err := ReadHashSecret(f.Beside(name)); err != nil {
		f.add(root, finding{path: []string{"warnings", "secret_file"}, msg: err.Error(), fix: secretFix(name)}, false)
	}
}

func secretFix(name string) string {
	return "create it with: head -c 32 /dev/urandom | base64 > " + name
}
