// Package weir decides whether a piece of work may go ahead now, must wait, or is refused.
package weir
