/*
 * The command line tools that look like the vendor's, for the table of their troubles.
 * TOOL(name, NODE | CHIP): CHIP when its runs are about one chip, so that one can be in trouble.
 * The Python side reads this file too; keep one entry per line.
 */
TOOL(hccn_tool, CHIP)
TOOL(ipmitool, NODE)
