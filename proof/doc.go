// Package proof is to be written.
package proof
