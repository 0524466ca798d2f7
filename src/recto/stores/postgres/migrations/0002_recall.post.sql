-- Nothing to take away: there was no version before.
SELECT 1;
