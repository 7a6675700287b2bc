// Package postgres tests weirsql and its policies with a real PostgreSQL.
package postgres
